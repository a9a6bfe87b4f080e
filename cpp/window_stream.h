#pragma once

#include <cstdint>
#include <memory>

#include "scratch.h"
#include "source.h"

namespace arrow::io {
class InputStream;
}

namespace torchparquet {

// Opens the bytes [offset, offset + num_bytes) of `file` as a stream that reads ahead
// in cache-sized windows into `window`. Both must outlive the stream, which is one
// thread's. A buffer that it returns is a view, valid until the next Peek or Read.
// Reading throws Error as LocalFile::ReadAt does.
std::shared_ptr<arrow::io::InputStream> OpenWindowStream(const LocalFile* file,
                                                         int64_t offset,
                                                         int64_t num_bytes,
                                                         ScratchBuffer* window);

}  // namespace torchparquet
