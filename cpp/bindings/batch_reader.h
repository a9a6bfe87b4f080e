#pragma once

#include <pybind11/pybind11.h>

namespace torchparquet {

// Adds the reader of batches, and the memory that it hands out.
void BindReader(pybind11::module_& m);

}  // namespace torchparquet
