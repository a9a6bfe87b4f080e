#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <vector>

#include "files/decryption.h"
#include "files/parquet_file.h"

namespace torchparquet {

// Adds the keys of a data set's files, made of capsules by `torchparquet._decryption`.
void BindDecryption(pybind11::module_& m);

// Gives each file its keys, where there are any. Throws ValueError for another number of
// files.
void AddKeys(const std::optional<std::shared_ptr<Decryption>>& decryption,
             std::vector<PlannedFile>* files);

}  // namespace torchparquet
