#pragma once

#include <pybind11/pybind11.h>

namespace torchparquet {

// Adds footers, which are read here, and page headers, which are parsed.
void BindFooters(pybind11::module_& m);

}  // namespace torchparquet
