#include "bridge/loaded_library.h"

#include <dlfcn.h>

#include <new>
#include <stdexcept>

#include "errors.h"

namespace torchparquet {
namespace {

const ArrowLibrary* in_use = nullptr;

}  // namespace

void LoadArrowLibrary(const std::string& path) {
  // Local: the symbols of two bridges, or of another copy of Arrow, stay apart.
  void* opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    throw Error(ErrorKind::kInternal,
                std::string("the bridge to Arrow cannot be loaded: ") + dlerror());
  }
  void* symbol = dlsym(opened, "torchparquet_arrow_library");
  const auto entry = reinterpret_cast<decltype(&torchparquet_arrow_library)>(symbol);
  const ArrowLibrary* library =
      entry == nullptr ? nullptr : entry(TORCHPARQUET_BRIDGE_ABI);
  if (library == nullptr) {
    throw Error(ErrorKind::kInternal,
                "the bridge to Arrow is of another build: " + PrintablePath(path));
  }
  UseArrowLibrary(library);
}

void UseArrowLibrary(const ArrowLibrary* library) { in_use = library; }

const ArrowLibrary& Arrow() {
  if (in_use == nullptr)
    throw Error(ErrorKind::kInternal, "no bridge to Arrow is loaded");
  return *in_use;
}

void Check(const Failure& failure) {
  if (failure.kind == Failure::Kind::kOutOfMemory) throw std::bad_alloc();
  if (failure) throw std::runtime_error(failure.message);
}

}  // namespace torchparquet
