#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace parquet {
class FileDecryptionProperties;
}  // namespace parquet

namespace torchparquet {

// The keys of a data set's files.
//
// Whoever gives out keys is asked for each while footers are read, and never again:
// after Close the keys that were had then are all there are. So decode threads call
// nobody back, who may need the GIL, or go over a network.
class Decryption {
 public:
  using Properties = std::shared_ptr<parquet::FileDecryptionProperties>;

  // How each file is decrypted; null where no keys are given. Files may share one.
  explicit Decryption(const std::vector<Properties>& of_files);
  ~Decryption();
  Decryption(const Decryption&) = delete;
  Decryption& operator=(const Decryption&) = delete;

  // Those to open a file with. They may outlive this.
  const Properties& of_file(size_t file) const { return of_files_.at(file); }
  size_t num_files() const { return of_files_.size(); }

  // Must be called while no thread uses the properties; idempotent. Lets go of whoever
  // gives out keys.
  void Close();

 private:
  class RememberedKeys;

  Properties Remembering(const Properties& given);

  std::vector<Properties> of_files_;
  std::vector<std::shared_ptr<RememberedKeys>> keys_;
};

}  // namespace torchparquet
