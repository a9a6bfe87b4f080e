#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bridge/arrow_library.h"
#include "files/parquet_file.h"
#include "files/parquet_files.h"

namespace torchparquet {

// Gives each file its content; none has one where there are none. Throws ValueError for
// another number of files.
void AddContents(const HeldContents& contents, std::vector<PlannedFile>* files);

// Gives each file its keys, where there are any. Throws ValueError for another number of
// files.
void AddKeys(const std::optional<std::shared_ptr<KeyRing>>& decryption,
             std::vector<PlannedFile>* files);

// The files of a data set for Python, with the contents of those in memory. Made and
// destroyed with the GIL.
class DataFiles {
 public:
  // `contents` are those of the files in `planned`. `footers` are as ParquetFiles takes
  // them.
  DataFiles(std::vector<PlannedFile> planned, HeldContents contents,
            std::vector<std::shared_ptr<const ParsedFooter>> footers)
      : contents_(std::move(contents)), files_(std::move(planned), std::move(footers)) {}

  // Keeps `data` alive, as the files need its contents.
  static std::shared_ptr<ParquetFiles> Of(const std::shared_ptr<DataFiles>& data) {
    return {data, &data->files_};
  }

 private:
  const HeldContents contents_;
  ParquetFiles files_;
};

}  // namespace torchparquet
