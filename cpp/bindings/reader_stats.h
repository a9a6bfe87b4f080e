#pragma once

#include <pybind11/pybind11.h>

namespace torchparquet {

// Adds what a reader tells of its work.
void BindStats(pybind11::module_& m);

}  // namespace torchparquet
