#include <arrow/util/secure_string.h>
#include <parquet/encryption/encryption.h>
#include <parquet/exception.h>

#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "bridge/arrow/parts.h"

namespace torchparquet::bridge {
namespace {

using Properties = std::shared_ptr<parquet::FileDecryptionProperties>;

// Asks for a key once, even if it is refused. Thread-safe, except Close.
class RememberedKeys : public parquet::DecryptionKeyRetriever {
 public:
  explicit RememberedKeys(std::shared_ptr<parquet::DecryptionKeyRetriever> retriever)
      : retriever_(std::move(retriever)) {}

  arrow::util::SecureString GetKey(const std::string& key_id) override {
    // No lock once all keys are known: a forked child may have copied it locked.
    if (retriever_ == nullptr) return KeyOf(key_id);
    {
      const std::lock_guard lock(mutex_);
      if (answers_.contains(key_id)) return KeyOf(key_id);
    }
    // Not under the lock, since it may take long. Two threads may ask for the same key.
    const Answer answer = Ask(key_id);
    const std::lock_guard lock(mutex_);
    answers_.try_emplace(key_id, answer);
    return KeyOf(key_id);
  }

  void Close() { retriever_.reset(); }

 private:
  struct Answer {
    arrow::util::SecureString key = {};
    std::string refusal = {};  // empty if there is a key
  };

  Answer Ask(const std::string& key_id) {
    try {
      return {.key = retriever_->GetKey(key_id)};
    } catch (const std::exception& error) {
      return {.refusal = std::string("no key: ") + error.what()};
    }
  }

  arrow::util::SecureString KeyOf(const std::string& key_id) const {
    const auto found = answers_.find(key_id);
    if (found == answers_.end()) {
      throw parquet::ParquetException("no key was had when footers were read");
    }
    if (!found->second.refusal.empty()) {
      throw parquet::ParquetException(found->second.refusal);
    }
    return found->second.key;
  }

  std::shared_ptr<parquet::DecryptionKeyRetriever> retriever_;
  std::mutex mutex_;
  std::unordered_map<std::string, Answer> answers_;  // guarded by mutex_ until Close
};

class ArrowKeyRing : public KeyRing {
 public:
  explicit ArrowKeyRing(std::span<const void* const> properties_of_files) {
    std::map<const parquet::FileDecryptionProperties*, std::shared_ptr<const FileKeys>>
        made;
    of_files_.reserve(properties_of_files.size());
    for (const void* pointer : properties_of_files) {
      std::shared_ptr<const FileKeys> keys;
      if (pointer != nullptr) {
        const Properties& given = *static_cast<const Properties*>(pointer);
        auto& known = made[given.get()];
        if (known == nullptr) known = std::make_shared<ArrowKeys>(Remembering(given));
        keys = known;
      }
      of_files_.push_back(std::move(keys));
    }
  }

  size_t num_files() const override { return of_files_.size(); }
  std::shared_ptr<const FileKeys> of_file(size_t file) const override {
    return of_files_.at(file);
  }
  void Close() override {
    for (const auto& keys : keys_) keys->Close();
  }

 private:
  // The same properties with another key manager. Properties do not give out explicit
  // keys of columns, and pyarrow makes none that have both such keys and a key manager.
  Properties Remembering(const Properties& given) {
    if (given->key_retriever() == nullptr) return given;
    keys_.push_back(std::make_shared<RememberedKeys>(given->key_retriever()));
    parquet::FileDecryptionProperties::Builder builder;
    builder.key_retriever(keys_.back())
        ->aad_prefix(given->aad_prefix())
        ->aad_prefix_verifier(given->aad_prefix_verifier());
    if (!given->footer_key().empty()) builder.footer_key(given->footer_key());
    if (given->plaintext_files_allowed()) builder.plaintext_files_allowed();
    if (!given->check_plaintext_footer_integrity()) {
      builder.disable_footer_signature_verification();
    }
    return builder.build();
  }

  std::vector<std::shared_ptr<const FileKeys>> of_files_;
  std::vector<std::shared_ptr<RememberedKeys>> keys_;
};

}  // namespace

std::shared_ptr<KeyRing> RememberKeys(std::span<const void* const> properties_of_files) {
  return std::make_shared<ArrowKeyRing>(properties_of_files);
}

}  // namespace torchparquet::bridge
