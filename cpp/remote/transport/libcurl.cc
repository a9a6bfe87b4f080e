#include "remote/transport/libcurl.h"

#include <dlfcn.h>

#include "base/errors.h"

namespace torchparquet {

#if defined(TORCHPARQUET_STATIC_CURL)
#define TORCHPARQUET_DECLARE(Result, name, parameters) \
  extern "C" Result curl_##name parameters;
TORCHPARQUET_OF_LIBCURL(TORCHPARQUET_DECLARE)
#endif

namespace {

constexpr unsigned kLeastVersion = 0x074400;  // 7.68

#if defined(TORCHPARQUET_STATIC_CURL)
bool Load(const char* /*path*/, Libcurl* curl) {
#define TORCHPARQUET_SET(Result, name, parameters) curl->name = &curl_##name;
  TORCHPARQUET_OF_LIBCURL(TORCHPARQUET_SET)
  return true;
}
#else
// Returns false if the library lacks a function, or is too old.
bool Load(const char* path, Libcurl* curl) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return false;
  // POSIX lets a pointer of dlsym be a function's.
#define TORCHPARQUET_SET(Result, name, parameters)                                    \
  curl->name = reinterpret_cast<decltype(curl->name)>(dlsym(library, "curl_" #name)); \
  if (curl->name == nullptr) return false;
  TORCHPARQUET_OF_LIBCURL(TORCHPARQUET_SET)
  constexpr int kFirstAge = 0;
  return curl->version_info(kFirstAge)->version_num >= kLeastVersion;
}
#endif

#if defined(__APPLE__)
constexpr const char* kSystemLibrary = "libcurl.4.dylib";
#else
constexpr const char* kSystemLibrary = "libcurl.so.4";
#endif

std::string& OfferedPath() {
  static std::string path;
  return path;
}

}  // namespace

void OfferLibcurl(const std::string& path) { OfferedPath() = path; }

const Libcurl* FindLibcurl() {
  static Libcurl functions;
  static const bool is_found =
      (!OfferedPath().empty() && Load(OfferedPath().c_str(), &functions)) ||
      Load(kSystemLibrary, &functions);
  return is_found ? &functions : nullptr;
}

const Libcurl& Curl() {
  const Libcurl* found = FindLibcurl();
  if (found == nullptr) {
    throw Error(ErrorKind::kNotSupported,
                "libcurl 7.68 or later was not found: install it, or the package pycurl, "
                "whose wheel holds it");
  }
  return *found;
}

}  // namespace torchparquet
