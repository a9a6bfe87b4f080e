#pragma once

#include <pybind11/pybind11.h>

namespace torchparquet {

// Adds the functions of the ledger of epochs, which lies in an array.
void BindEpochLedger(pybind11::module_& m);

}  // namespace torchparquet
