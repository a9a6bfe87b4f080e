#include "bridge/loaded_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <new>
#include <stdexcept>

#include "base/errors.h"

#if defined(__linux__)
#include <elf.h>
#endif

namespace torchparquet {
namespace {

constexpr const char* kReinstall =
    "; install torchparquet again, in a checkout: pip install --force-reinstall "
    "--no-deps .";

Error CannotLoad(const std::string& reason) {
  return Error(ErrorKind::kInternal,
               "the bridge to Arrow cannot be loaded: " + reason + kReinstall);
}

#if defined(__linux__)
// True if the file ends before its segments do. dlopen would map them all the same, and
// the process would end by SIGBUS. For what is no library, dlopen has an error. The casts
// are to the bytes of structures that a file holds.
bool IsTorn(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto num_bytes = static_cast<uint64_t>(std::max<int64_t>(file.tellg(), 0));
  Elf64_Ehdr header;
  file.seekg(0);
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header)) return false;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return false;
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return false;
  for (int64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    file.seekg(static_cast<int64_t>(header.e_phoff) + i * header.e_phentsize);
    if (!file.read(reinterpret_cast<char*>(&segment), sizeof segment)) return true;
    if (segment.p_type == PT_LOAD && segment.p_offset + segment.p_filesz > num_bytes) {
      return true;
    }
  }
  return false;
}
#else
bool IsTorn(const std::string&) { return false; }
#endif

std::atomic<const ArrowLibrary*> in_use{nullptr};

}  // namespace

void LoadArrowLibrary(const std::string& path) {
  if (IsTorn(path)) throw CannotLoad(PrintablePath(path) + ": file too short");
  // Local: the symbols of two bridges, or of another copy of Arrow, stay apart.
  void* opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) throw CannotLoad(dlerror());
  void* symbol = dlsym(opened, "torchparquet_arrow_library");
  const auto entry = reinterpret_cast<decltype(&torchparquet_arrow_library)>(symbol);
  const ArrowLibrary* library =
      entry == nullptr ? nullptr : entry(TORCHPARQUET_BRIDGE_ABI);
  if (library == nullptr) {
    throw Error(ErrorKind::kInternal, "the bridge to Arrow is of another build: " +
                                          PrintablePath(path) + kReinstall);
  }
  UseArrowLibrary(library);
}

// Release and acquire: a thread that sees the bridge sees it initialised.
void UseArrowLibrary(const ArrowLibrary* library) {
  in_use.store(library, std::memory_order_release);
}

const ArrowLibrary& Arrow() {
  const ArrowLibrary* library = in_use.load(std::memory_order_acquire);
  if (library == nullptr)
    throw Error(ErrorKind::kInternal, "no bridge to Arrow is loaded");
  return *library;
}

void Check(const Failure& failure) {
  if (failure.kind == Failure::Kind::kOutOfMemory) throw std::bad_alloc();
  if (failure) throw std::runtime_error(failure.message);
}

}  // namespace torchparquet
