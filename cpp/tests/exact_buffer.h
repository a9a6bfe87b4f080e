#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

namespace torchparquet::testing {

// A copy in a heap block of exactly its size, so that the address sanitizer sees every
// access past either end.
template <typename T>
class ExactBuffer {
 public:
  explicit ExactBuffer(size_t size) : data_(std::make_unique<T[]>(size)), size_(size) {}
  explicit ExactBuffer(std::span<const T> content) : ExactBuffer(content.size()) {
    std::copy(content.begin(), content.end(), data_.get());
  }
  explicit ExactBuffer(const std::vector<T>& content)
      : ExactBuffer(std::span<const T>(content)) {}

  T* data() { return data_.get(); }
  size_t size() const { return size_; }
  std::span<T> span() { return {data_.get(), size_}; }
  std::vector<T> Copy() const { return {data_.get(), data_.get() + size_}; }

 private:
  std::unique_ptr<T[]> data_;
  size_t size_;
};

}  // namespace torchparquet::testing
