#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sidereal/data/data_spec.h"

namespace sidereal::data {

/// A click log with a planted truth, in the shape of Criteo's: 13 numbers, 26 categories.
///
/// Ids of a field follow a power law (exponents 1.05 to 1.2) over vocabularies of 3 to 10^6 ids,
/// 3.9 million in all, in one id space, scattered so that frequent ids lie nowhere
/// together. The label is 1 with probability sigmoid(logit); the logit is a bias, plus weighted
/// numbers, plus a weight per id, plus inner products of latent vectors for some pairs of fields
/// (the form of a factorization machine: Rendle, 2010). Weights come from a hash of (seed, field,
/// id) and shrink for rare ids, so that what can be known can be learned from a few million rows.
/// About 25 % of labels are 1, and the best AUC any model can reach is about 0.81.
/// Thread: immutable.
class SyntheticStream {
 public:
  static constexpr int kNumeric = 13;
  static constexpr int kFields = 26;

  explicit SyntheticStream(const SyntheticSpec& spec);

  /// Ids of all fields together: every id is below this.
  [[nodiscard]] int64_t id_space() const { return id_space_; }
  /// Ids of field `field`.
  [[nodiscard]] int64_t vocabulary(int field) const { return fields_[field].vocabulary; }

  /// Where one row goes: `dense` holds kNumeric values, `ids` kFields.
  struct Row {
    float* label;
    float* truth;
    float* dense;
    int64_t* ids;
  };
  /// Writes row `row` of the stream. `truth` is the probability of label 1.
  void generate(int64_t row, const Row& out) const;

 private:
  // The inverse of a cumulative distribution at equal steps of probability; straight between.
  static constexpr int kCells = 2048;
  using Quantiles = std::array<float, kCells + 1>;

  struct Field {
    int64_t vocabulary = 0;
    int64_t first_id = 0;
    // Weights and latent vectors are hashes of the rank under this key.
    uint64_t key = 0;
    Quantiles ranks{};
  };
  struct Number {
    float weight = 0;
    float mean = 0;
    Quantiles values{};
  };

  static float at(const Quantiles& quantiles, uint32_t draw);
  static Quantiles power_law(int64_t vocabulary, double exponent);
  static Quantiles skewed(double mean);
  void calibrate();
  float draw_row(int64_t row, float* dense, std::array<float, kFields>* ranks,
                 float* label_draw) const;
  float signal(const float* dense, const std::array<float, kFields>& ranks) const;

  uint64_t rows_key_;
  int64_t id_space_ = 0;
  // Ids are scattered by a bijection: id * multiplier mod id_space.
  uint64_t multiplier_ = 1;
  std::vector<Field> fields_;
  std::vector<Number> numbers_;
  float scale_ = 1;
  float bias_ = 0;
};

/// The best AUC any model can reach on `rows` rows of the stream from `first_row` on: that of the
/// true probabilities against the labels.
double best_auc(const SyntheticStream& stream, int64_t first_row, int64_t rows);

}  // namespace sidereal::data
