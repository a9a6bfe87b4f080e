#pragma once

namespace torchparquet {

// Makes every torchparquet::Error that leaves the extension the Python exception of
// its kind: those of torchparquet.errors, or Python's own.
void RegisterExceptions();

}  // namespace torchparquet
