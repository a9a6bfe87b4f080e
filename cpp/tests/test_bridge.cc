// Linked to tests that open files, which use the bridge to the installed pyarrow.

#include "bridge/arrow_library.h"
#include "bridge/loaded_library.h"

namespace torchparquet {
namespace {

const bool linked = [] {
  UseArrowLibrary(torchparquet_arrow_library(TORCHPARQUET_BRIDGE_ABI));
  return true;
}();

}  // namespace
}  // namespace torchparquet
