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
// The key manager is asked for each key while footers are read, and never again: after
// Close only the keys obtained until then exist. So decode threads never call a key
// manager, which may need the GIL or go over a network.
class Decryption {
 public:
  using Properties = std::shared_ptr<parquet::FileDecryptionProperties>;

  // The decryption of each file, or null for files without keys. Files may share one.
  explicit Decryption(const std::vector<Properties>& of_files);
  ~Decryption();
  Decryption(const Decryption&) = delete;
  Decryption& operator=(const Decryption&) = delete;

  // The properties to open a file with. They may outlive this object.
  const Properties& of_file(size_t file) const { return of_files_.at(file); }
  size_t num_files() const { return of_files_.size(); }

  // Releases the key manager. Call it while no thread uses the properties. Idempotent.
  void Close();

 private:
  class RememberedKeys;

  Properties Remembering(const Properties& given);

  std::vector<Properties> of_files_;
  std::vector<std::shared_ptr<RememberedKeys>> keys_;
};

}  // namespace torchparquet
