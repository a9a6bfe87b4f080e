#pragma once

#include <pybind11/pybind11.h>

namespace torchparquet {

// Adds the order of the rows of shuffle windows, and their memory.
void BindWindows(pybind11::module_& m);

}  // namespace torchparquet
