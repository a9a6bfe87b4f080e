#pragma once

#include <string>

#include "bridge/arrow_library.h"

namespace torchparquet {

// Loads the bridge in that file, for the rest of the process. Throws Error(kInternal) if
// it cannot be loaded or was compiled with another interface. Call it before anything
// else here, from one thread.
void LoadArrowLibrary(const std::string& path);

// Uses a bridge that is linked already.
void UseArrowLibrary(const ArrowLibrary* library);

// The bridge in use. Throws Error(kInternal) without one.
const ArrowLibrary& Arrow();

// Throws for a failure: std::bad_alloc, or a std::runtime_error with the message.
void Check(const Failure& failure);

}  // namespace torchparquet
