#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace torchparquet::kernels {

// What becomes of a column's values on their way into a batch: floats go through steps,
// and borders may number the result; or a hash numbers integers and strings. Immutable,
// so shared by all threads.
class Transform {
 public:
  struct Step {
    enum class Kind : uint8_t {
      kClip,   // between `first` and `second`
      kLog1p,  // log(1 + x)
      kScale,  // (x - first) / second
    };
    Kind kind = Kind::kClip;
    double first = 0;
    double second = 0;
  };
  struct Parts {
    std::vector<Step> steps = {};
    // Ascending. A value becomes the number of borders below it, as by torch.bucketize.
    std::optional<std::vector<double>> borders = std::nullopt;
    bool counts_equal = false;  // a border that the value is equal to counts too
    // Above 0: values are hashed to as many buckets, and neither steps nor borders apply.
    int64_t num_buckets = 0;
    uint64_t seed = 0;
  };
  // Throws Error(kInvalidArgument).
  explicit Transform(Parts parts);

  // True if it takes integers and bytes, and no floats.
  bool is_hash() const { return parts_.num_buckets > 0; }
  // True if it makes int64, and no float64.
  bool makes_integers() const { return is_hash() || parts_.borders.has_value(); }

  // XXH64 of the bytes, modulo the number of buckets. Only if is_hash().
  int64_t BucketOf(std::span<const uint8_t> bytes) const;
  // Transforms in place: the bits of int64, or of uint64, hashed as their eight bytes,
  // the lowest first, if is_hash(), else of float64. They become int64 if
  // makes_integers().
  void Apply(std::span<uint64_t> words) const;

 private:
  const Parts parts_;
};

}  // namespace torchparquet::kernels
