#pragma once

#include <pybind11/numpy.h>

#include <cstddef>
#include <cstdint>
#include <memory>
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

// The bytes of Python objects with the buffer protocol, which are neither moved nor freed
// while this lives. Made and destroyed with the GIL.
class HeldContents {
 public:
  // Throws BufferError for what has no contiguous bytes.
  explicit HeldContents(const std::vector<pybind11::buffer>& contents) {
    views_.reserve(contents.size());
    for (const pybind11::buffer& content : contents) {
      auto view = std::make_unique<Py_buffer>();
      if (PyObject_GetBuffer(content.ptr(), view.get(), PyBUF_SIMPLE) != 0) {
        throw pybind11::error_already_set();
      }
      views_.emplace_back(view.release());
    }
  }

  size_t size() const { return views_.size(); }
  std::span<const uint8_t> operator[](size_t content) const {
    const Py_buffer& view = *views_[content];
    return {static_cast<const uint8_t*>(view.buf), static_cast<size_t>(view.len)};
  }

 private:
  struct Release {
    void operator()(Py_buffer* view) const {
      PyBuffer_Release(view);
      delete view;
    }
  };

  std::vector<std::unique_ptr<Py_buffer, Release>> views_;
};

}  // namespace torchparquet
