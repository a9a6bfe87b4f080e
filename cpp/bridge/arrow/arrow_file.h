#pragma once

#include <memory>

#include "bridge/arrow_library.h"

namespace torchparquet::bridge {

// As ArrowLibrary::Open.
Failure OpenFile(const ByteSource& source, const ArrowOpening& opening,
                 std::unique_ptr<ArrowFile>* file, FooterFacts* facts);

}  // namespace torchparquet::bridge
