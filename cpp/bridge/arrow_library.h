#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "bridge/byte_source.h"
#include "bridge/footer_facts.h"
#include "bridge/format.h"

namespace torchparquet {

// All that is asked of the Arrow libraries. `bridge/arrow` implements it, once for each
// release of pyarrow. No type of Arrow crosses it, and no exception of Arrow: failures
// are returned. An exception of a ByteSource passes through.

struct Failure {
  enum class Kind { kNone, kFailed, kOutOfMemory };

  Kind kind = Kind::kNone;
  std::string message = {};

  explicit operator bool() const { return kind != Kind::kNone; }
};

// The decompression of one codec. Used by one thread.
class ArrowCodec {
 public:
  virtual ~ArrowCodec() = default;
  // Writes at most `out` and tells how many bytes the content has.
  virtual Failure Decompress(std::span<const uint8_t> bytes, std::span<uint8_t> out,
                             int64_t* num_written) = 0;
};

// A page after decryption and decompression: its header says that it is not compressed.
struct DecryptedPage {
  PageHeader header = {};
  std::span<const uint8_t> body = {};
};

// The pages of an encrypted column chunk, with their checksums verified. Used by one
// thread.
class ArrowPages {
 public:
  virtual ~ArrowPages() = default;
  // The next page, valid until the next call; nothing at the end.
  virtual Failure Next(std::optional<DecryptedPage>* page) = 0;
};

// The column chunks of a parsed footer. Immutable, thread-safe. Needs no file.
class ArrowChunks {
 public:
  virtual ~ArrowChunks() = default;
  // Fails for a chunk that is encrypted and has no key.
  virtual Failure Describe(int row_group, int column, ChunkFacts* facts) const = 0;
};

// A file that Arrow has opened.
class ArrowFile {
 public:
  virtual ~ArrowFile() = default;
  virtual std::shared_ptr<const ArrowChunks> chunks() const = 0;
  // Called by one thread at a time.
  virtual Failure OpenPages(int row_group, int column,
                            std::unique_ptr<ArrowPages>* pages) = 0;
};

// The keys of one file. Immutable, thread-safe.
class FileKeys {
 public:
  virtual ~FileKeys() = default;
};

// The keys of a data set's files.
//
// The key manager is asked for each key while footers are read, and never again: after
// Close only the keys obtained until then exist. So decode threads never call a key
// manager, which may need the GIL or go over a network.
class KeyRing {
 public:
  virtual ~KeyRing() = default;
  virtual size_t num_files() const = 0;
  // The keys of a file, which may outlive this; null for a file without keys.
  virtual std::shared_ptr<const FileKeys> of_file(size_t file) const = 0;
  // Releases the key manager. Call it while no thread uses the keys. Idempotent.
  virtual void Close() = 0;
};

struct ArrowOpening {
  int64_t file_bytes = 0;
  int64_t footer_bytes = 0;
  int64_t page_buffer_bytes = 0;  // that pages read at a time
  std::shared_ptr<const FileKeys> keys = nullptr;
};

class ArrowLibrary {
 public:
  // The release of pyarrow, as in "26.0".
  virtual const char* release() const = 0;

  // Parses a footer. `source` must outlive the file. Fails for what is no Parquet file,
  // and for keys that do not fit.
  virtual Failure Open(const ByteSource& source, const ArrowOpening& opening,
                       std::unique_ptr<ArrowFile>* file, FooterFacts* facts) const = 0;

  virtual bool HasCodec(int codec) const = 0;
  virtual Failure OpenCodec(int codec, std::unique_ptr<ArrowCodec>* opened) const = 0;

  // Each element points to a shared pointer to one of parquet's FileDecryptionProperties,
  // or is null for a file without keys. Files may share one.
  virtual Failure RememberKeys(std::span<const void* const> properties_of_files,
                               std::shared_ptr<KeyRing>* keys) const = 0;

 protected:
  ~ArrowLibrary() = default;
};

// The one symbol of a bridge. `abi` identifies this interface as the caller was compiled
// with it; null for any other.
extern "C" __attribute__((visibility("default"))) const ArrowLibrary*
torchparquet_arrow_library(const char* abi);

}  // namespace torchparquet
