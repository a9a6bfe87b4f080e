#include "window_stream.h"

#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>
#include <arrow/result.h>
#include <arrow/status.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace torchparquet {
namespace {

// Small enough to stay in a core's L2 cache until it is decoded.
constexpr int64_t kWindowBytes = int64_t{256} << 10;
// Readable bytes behind the last one, for kernels that load whole words.
constexpr int64_t kPaddingBytes = 64;

// A byte range of a file as the input stream that Parquet's page reader wants. It
// reads ahead in windows into one thread's scratch and hands out views of it, so no
// buffer is allocated and the bytes are still in the core's cache when they are
// decoded.
class WindowStream : public arrow::io::InputStream {
 public:
  WindowStream(const LocalFile* file, int64_t offset, int64_t num_bytes,
               ScratchBuffer* window)
      : file_(file), offset_(offset), num_bytes_(num_bytes), window_(window) {}

  arrow::Result<std::string_view> Peek(int64_t num_bytes) override;
  arrow::Result<int64_t> Read(int64_t num_bytes, void* out) override;
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t num_bytes) override;
  arrow::Result<int64_t> Tell() const override { return position_; }
  arrow::Status Close() override;
  bool closed() const override { return closed_; }
  bool supports_zero_copy() const override { return true; }

 private:
  // Makes up to `num_bytes` from the position on available and returns how many are.
  int64_t Fill(int64_t num_bytes);
  const uint8_t* data() const { return window_->data() + (position_ - window_begin_); }

  const LocalFile* file_;
  const int64_t offset_;
  const int64_t num_bytes_;
  ScratchBuffer* window_;
  int64_t position_ = 0;      // within the range
  int64_t window_begin_ = 0;  // the range's bytes that the window holds
  int64_t window_end_ = 0;
  bool closed_ = false;
};

int64_t WindowStream::Fill(int64_t num_bytes) {
  num_bytes = std::min(num_bytes, num_bytes_ - position_);
  if (position_ + num_bytes <= window_end_) return num_bytes;
  const int64_t kept_bytes = window_end_ - position_;
  const int64_t wanted_bytes =
      std::min(std::max(num_bytes, kWindowBytes), num_bytes_ - position_);
  const auto needed_capacity = static_cast<size_t>(wanted_bytes + kPaddingBytes);
  if (needed_capacity > window_->capacity()) {
    // Growth drops the content, so the kept bytes are read again. Rare: the window
    // grows to the largest page that the thread has met.
    window_->Reserve(needed_capacity);
    file_->ReadAt(offset_ + position_, wanted_bytes, window_->data());
  } else {
    if (kept_bytes > 0)
      std::memmove(window_->data(), data(), static_cast<size_t>(kept_bytes));
    file_->ReadAt(offset_ + position_ + kept_bytes, wanted_bytes - kept_bytes,
                  window_->data() + kept_bytes);
  }
  window_begin_ = position_;
  window_end_ = position_ + wanted_bytes;
  return num_bytes;
}

arrow::Result<std::string_view> WindowStream::Peek(int64_t num_bytes) {
  const int64_t count = Fill(num_bytes);
  // The page reader looks at bytes as text.
  return std::string_view(reinterpret_cast<const char*>(data()),
                          static_cast<size_t>(count));
}

arrow::Result<int64_t> WindowStream::Read(int64_t num_bytes, void* out) {
  const int64_t count = Fill(num_bytes);
  std::memcpy(out, data(), static_cast<size_t>(count));
  position_ += count;
  return count;
}

arrow::Result<std::shared_ptr<arrow::Buffer>> WindowStream::Read(int64_t num_bytes) {
  const int64_t count = Fill(num_bytes);
  auto buffer = std::make_shared<arrow::Buffer>(data(), count);
  position_ += count;
  return buffer;
}

arrow::Status WindowStream::Close() {
  closed_ = true;
  return arrow::Status::OK();
}

}  // namespace

std::shared_ptr<arrow::io::InputStream> OpenWindowStream(const LocalFile* file,
                                                         int64_t offset,
                                                         int64_t num_bytes,
                                                         ScratchBuffer* window) {
  return std::make_shared<WindowStream>(file, offset, num_bytes, window);
}

}  // namespace torchparquet
