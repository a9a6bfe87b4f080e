#pragma once

#include <unistd.h>

#include <memory>
#include <utility>

namespace torchparquet {

// Makes an object that a forked child never frees: threads of the parent may have held
// its locks or waited for it, and there they are gone.
template <typename Owned, typename... Arguments>
std::shared_ptr<Owned> MakeProcessOwned(Arguments&&... arguments) {
  return {new Owned(std::forward<Arguments>(arguments)...),
          [owner_pid = getpid()](Owned* owned) {
            if (getpid() == owner_pid) delete owned;
          }};
}

}  // namespace torchparquet
