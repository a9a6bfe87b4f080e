#pragma once

#include <pybind11/numpy.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace torchparquet {

template <typename T>
using Array = pybind11::array_t<T, pybind11::array::c_style | pybind11::array::forcecast>;
using Int64Array = Array<int64_t>;
using Uint32Array = Array<uint32_t>;
using Uint64Array = Array<uint64_t>;
using BoolArray = Array<bool>;

// Valid as long as the array.
template <typename T>
std::span<const T> SpanOf(const Array<T>& array) {
  return {array.data(), static_cast<size_t>(array.size())};
}

template <typename T>
std::vector<T> VectorOf(const Array<T>& array) {
  return {array.data(), array.data() + array.size()};
}

template <typename T>
Array<T> ArrayOf(const std::vector<T>& values) {
  return Array<T>(static_cast<pybind11::ssize_t>(values.size()), values.data());
}

}  // namespace torchparquet
