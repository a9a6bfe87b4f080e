#pragma once

#include <pybind11/pybind11.h>

namespace torchparquet {

// Adds what a reader is told of the tensors of a batch, and of the columns for them.
void BindSpecs(pybind11::module_& m);

}  // namespace torchparquet
