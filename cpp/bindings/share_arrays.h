#pragma once

#include <pybind11/numpy.h>

#include <cstdint>
#include <vector>

#include "tasks/reader_spec.h"
#include "tasks/share.h"

namespace torchparquet {

using Int64Array =
    pybind11::array_t<int64_t, pybind11::array::c_style | pybind11::array::forcecast>;
using Uint64Array =
    pybind11::array_t<uint64_t, pybind11::array::c_style | pybind11::array::forcecast>;
using BoolArray =
    pybind11::array_t<bool, pybind11::array::c_style | pybind11::array::forcecast>;

// The share as arrays, one entry per chunk.
struct ShareArrays {
  Int64Array file, row_group, begin, num_rows, first_row_id;
  BoolArray valid;
};

// Throws pybind11::value_error where the arrays differ in length.
Share ToShare(const ShareArrays& arrays, int64_t rank, int64_t world_size);

// The shuffle windows of a share as arrays, one entry per window.
struct WindowArrays {
  Int64Array num_chunks;
  Uint64Array key;
  Int64Array begin, end;
};

// Throws pybind11::value_error where the arrays differ in length.
std::vector<Window> ToWindows(const WindowArrays& arrays);

// Divides the share's chunks and windows, given lane after lane, into shares of their
// own. Throws pybind11::value_error where lanes do not have all of them.
void DealToLanes(const std::vector<int64_t>& num_chunks,
                 const std::vector<int64_t>& num_windows,
                 const std::vector<int64_t>& index, ReaderSpec* spec);

}  // namespace torchparquet
