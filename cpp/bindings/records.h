#pragma once

#include <pybind11/pybind11.h>

namespace torchparquet {

// Adds the order of all rows by a key, and rows as records.
void BindRecords(pybind11::module_& m);

}  // namespace torchparquet
