#include "pages/libdeflate.h"

#include <dlfcn.h>

#include <cstddef>
#include <new>

namespace torchparquet {
namespace {

#if defined(__APPLE__)
constexpr const char* kSystemLibrary = "libdeflate.0.dylib";
#else
constexpr const char* kSystemLibrary = "libdeflate.so.0";
#endif

// The functions by libdeflate.h. Its interface is stable since version 1.0.
struct Functions {
  void* (*allocate)() = nullptr;
  void (*free)(void* decompressor) = nullptr;
  // Returns 0 if it has decompressed a member to `*num_written` bytes.
  int (*decompress)(void* decompressor, const void* in, size_t in_bytes, void* out,
                    size_t out_bytes, size_t* num_read, size_t* num_written) = nullptr;

  bool is_complete() const { return allocate && free && decompress; }
};

std::string& OfferedPath() {
  static std::string path;
  return path;
}

Functions Load(const char* path) {
  // Lazily: the library may be an extension whose other functions are Python's. It stays
  // loaded.
  void* library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return {};
  Functions functions;
  // POSIX lets a pointer of dlsym be a function's.
  functions.allocate = reinterpret_cast<decltype(functions.allocate)>(
      dlsym(library, "libdeflate_alloc_decompressor"));
  functions.free = reinterpret_cast<decltype(functions.free)>(
      dlsym(library, "libdeflate_free_decompressor"));
  functions.decompress = reinterpret_cast<decltype(functions.decompress)>(
      dlsym(library, "libdeflate_gzip_decompress_ex"));
  return functions;
}

const Functions& Loaded() {
  static const Functions functions = [] {
    Functions found;
    if (!OfferedPath().empty()) found = Load(OfferedPath().c_str());
    if (!found.is_complete()) found = Load(kSystemLibrary);
    return found.is_complete() ? found : Functions{};
  }();
  return functions;
}

}  // namespace

void OfferLibdeflate(const std::string& path) { OfferedPath() = path; }

bool Libdeflate::IsAvailable() { return Loaded().is_complete(); }

void Libdeflate::Free::operator()(void* decompressor) const {
  Loaded().free(decompressor);
}

bool Libdeflate::Decompress(std::span<const uint8_t> bytes, std::span<uint8_t> out) {
  const Functions& functions = Loaded();
  if (decompressor_ == nullptr) decompressor_.reset(functions.allocate());
  if (decompressor_ == nullptr) throw std::bad_alloc();
  size_t num_read = 0;
  size_t num_written = 0;
  const int failed =
      functions.decompress(decompressor_.get(), bytes.data(), bytes.size(), out.data(),
                           out.size(), &num_read, &num_written);
  return failed == 0 && num_read == bytes.size() && num_written == out.size();
}

}  // namespace torchparquet
