#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <utility>
#include <vector>

#include "bindings/held_contents.h"
#include "files/parquet_files.h"

namespace torchparquet {

// The files of a data set for Python, with the contents of those in memory. Made and
// destroyed with the GIL.
class DataFiles {
 public:
  // `contents` are those of the files in `planned`.
  DataFiles(std::vector<PlannedFile> planned, HeldContents contents)
      : contents_(std::move(contents)),
        files_(std::make_shared<ParquetFiles>(std::move(planned))) {}

  // Not to be read from when this is gone.
  const std::shared_ptr<ParquetFiles>& files() const { return files_; }

 private:
  const HeldContents contents_;
  const std::shared_ptr<ParquetFiles> files_;
};

// Adds the files of a data set.
void BindDataFiles(pybind11::module_& m);

}  // namespace torchparquet
