#pragma once

#include <memory>

#include "bridge/arrow_library.h"

namespace torchparquet::bridge {

// `codec` is a number of the format, here and below.
bool HasCodec(int codec);
Failure OpenCodec(int codec, std::unique_ptr<ArrowCodec>* opened);

// The number of one of Arrow's codecs.
int NumberOfCodec(int arrow_codec);

}  // namespace torchparquet::bridge
