#include "sidereal/data/synthetic.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/data/auc.h"
#include "sidereal/data/random.h"

namespace sidereal::data {
namespace {

constexpr int kNumeric = SyntheticStream::kNumeric;
constexpr int kFields = SyntheticStream::kFields;

// The spread of Criteo's published vocabularies: some tiny, some of a million.
constexpr std::array<int64_t, kFields> kVocabularies = {
    1460,   580,  1'000'000, 600'000, 305, 24,      12'500,  630,   3,
    60'000, 5600, 800'000,   3200,    27,  15'000,  500'000, 10,    5600,
    2200,   4,    700'000,   18,      15,  100'000, 105,     40'000};

// Fields whose latent vectors meet; one of the two is small, so that each meeting is seen often.
struct Pair {
  int first;
  int second;
};
constexpr std::array<Pair, 4> kPairs = {{{4, 5}, {21, 24}, {2, 16}, {22, 7}}};

// Shares of the variance of the logit (before rare ids are damped).
constexpr double kNumberShare = 0.15;
constexpr double kIdShare = 0.60;
constexpr double kPairShare = 0.25;
// Standard deviation of the logit and share of ones; together a best AUC near 0.81.
constexpr double kLogitDeviation = 1.45;
constexpr double kOnes = 0.25;
// The weight of an id of rank r is damped by kHead / (kHead + r), its latent vector by the same
// with kPairHead.
constexpr float kHead = 300;
constexpr float kPairHead = 30;

constexpr int kCalibrationRows = 8192;
constexpr double kMissing = 0.15;
// 13 numbers, 26 ids and the label, two draws to a random number.
constexpr int kDraws = 40;

float signed_unit(uint32_t bits) {
  return static_cast<float>(static_cast<int32_t>(bits)) * 0x1p-31F;
}
float signed_unit16(uint64_t bits) {
  return static_cast<float>(static_cast<int16_t>(bits & 0xffff)) * 0x1p-15F;
}

float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }

}  // namespace

float SyntheticStream::at(const Quantiles& quantiles, uint32_t draw) {
  constexpr int kFractionBits = 32 - 11;
  static_assert(kCells == 1 << 11);
  const uint32_t cell = draw >> kFractionBits;
  const float fraction =
      static_cast<float>(draw & ((1U << kFractionBits) - 1)) * (1.0F / (1U << kFractionBits));
  const float low = quantiles[cell];
  return low + fraction * (quantiles[cell + 1] - low);
}

// Ranks with density proportional to (rank + 1)^-exponent.
SyntheticStream::Quantiles SyntheticStream::power_law(int64_t vocabulary, double exponent) {
  Quantiles out;
  const double power = 1 - exponent;
  const double last = std::pow(static_cast<double>(vocabulary) + 1, power) - 1;
  for (int i = 0; i <= kCells; ++i) {
    out[i] = static_cast<float>(std::pow(1 + last * i / kCells, 1 / power) - 1);
  }
  return out;
}

// Zero for the missing, else exponential: the logarithm of a count.
SyntheticStream::Quantiles SyntheticStream::skewed(double mean) {
  Quantiles out;
  for (int i = 0; i <= kCells; ++i) {
    const double u = (static_cast<double>(i) / kCells - kMissing) / (1 - kMissing);
    const double capped = std::min(u, 1 - 0.5 / kCells);
    out[i] = u <= 0 ? 0.0F : static_cast<float>(-mean * std::log1p(-capped));
  }
  return out;
}

SyntheticStream::SyntheticStream(const SyntheticSpec& spec)
    : rows_key_(counter_random(spec.seed, 0)), fields_(kFields), numbers_(kNumeric) {
  Random random(counter_random(spec.seed, 1));
  for (int f = 0; f < kFields; ++f) {
    Field& field = fields_[f];
    field.vocabulary = std::min(kVocabularies[f], std::max<int64_t>(spec.vocabulary_max, 4));
    field.first_id = id_space_;
    field.key = random.next();
    field.ranks = power_law(field.vocabulary, 1.05 + 0.02 * (f % 8));
    id_space_ += field.vocabulary;
  }
  for (Number& number : numbers_) {
    const double mean = 0.5 + 2.0 * static_cast<double>(random.below(1000)) / 1000;
    number.values = skewed(mean);
    number.mean = static_cast<float>(mean * (1 - kMissing));
    const double strength = signed_unit(static_cast<uint32_t>(random.next()));
    number.weight =
        static_cast<float>(std::sqrt(3.0) * strength * std::sqrt(kNumberShare / kNumeric) / mean);
  }
  multiplier_ = static_cast<uint64_t>(static_cast<double>(id_space_) * 0.6180339887498949);
  while (std::gcd(multiplier_, static_cast<uint64_t>(id_space_)) != 1) ++multiplier_;
  calibrate();
}

// Sets scale and bias so that the logit has its deviation and the labels their share of ones,
// whatever the seed made of the weights.
void SyntheticStream::calibrate() {
  std::vector<double> signals(kCalibrationRows);
  std::array<float, kNumeric> dense;
  std::array<float, kFields> ranks;
  float label_draw = 0;
  for (int i = 0; i < kCalibrationRows; ++i) {
    signals[i] = draw_row(-1 - i, dense.data(), &ranks, &label_draw);
  }
  const double mean = std::accumulate(signals.begin(), signals.end(), 0.0) / kCalibrationRows;
  double square = 0;
  for (const double s : signals) square += (s - mean) * (s - mean);
  const double scale = kLogitDeviation / std::sqrt(square / kCalibrationRows);
  double low = -20;
  double high = 20;
  for (int round = 0; round < 40; ++round) {
    const double bias = (low + high) / 2;
    double ones = 0;
    for (const double s : signals) ones += 1 / (1 + std::exp(-(bias + scale * (s - mean))));
    (ones > kOnes * kCalibrationRows ? high : low) = bias;
  }
  scale_ = static_cast<float>(scale);
  bias_ = static_cast<float>((low + high) / 2 - scale * mean);
}

// Draws numbers and ranks of a row and returns its signal; rows below 0 are for calibration.
float SyntheticStream::draw_row(int64_t row, float* dense, std::array<float, kFields>* ranks,
                                float* label_draw) const {
  const uint64_t key = counter_random(rows_key_, static_cast<uint64_t>(row));
  std::array<uint32_t, kDraws> draws;
  for (int i = 0; i < kDraws / 2; ++i) {
    const uint64_t bits = counter_random(key, static_cast<uint64_t>(i));
    draws[2 * i] = static_cast<uint32_t>(bits);
    draws[2 * i + 1] = static_cast<uint32_t>(bits >> 32);
  }
  for (int k = 0; k < kNumeric; ++k) dense[k] = at(numbers_[k].values, draws[k]);
  for (int f = 0; f < kFields; ++f) {
    const float last = static_cast<float>(fields_[f].vocabulary - 1);
    const float rank = at(fields_[f].ranks, draws[kNumeric + f]);
    (*ranks)[f] = std::min(static_cast<float>(static_cast<int32_t>(rank)), last);
  }
  *label_draw = static_cast<float>(draws[kDraws - 1] >> 8) * 0x1p-24F;
  return signal(dense, *ranks);
}

float SyntheticStream::signal(const float* dense, const std::array<float, kFields>& ranks) const {
  constexpr float kRoot3 = 1.7320508F;  // A uniform number of [-1, 1] times this has variance 1.
  const auto id_scale = static_cast<float>(std::sqrt(kIdShare / kFields)) * kRoot3;
  const auto pair_scale = static_cast<float>(std::sqrt(kPairShare / kPairs.size() / 2)) * 3.0F;
  float sum = 0;
  for (int k = 0; k < kNumeric; ++k) sum += numbers_[k].weight * (dense[k] - numbers_[k].mean);
  std::array<uint64_t, kFields> hashes;
  for (int f = 0; f < kFields; ++f) {
    hashes[f] = counter_random(fields_[f].key, static_cast<uint64_t>(ranks[f]));
  }
  float id_sum = 0;
  for (int f = 0; f < kFields; ++f) {
    const float damping = kHead / (kHead + ranks[f]);
    id_sum += damping * signed_unit(static_cast<uint32_t>(hashes[f]));
  }
  float pair_sum = 0;
  for (const Pair& pair : kPairs) {
    const uint64_t a = hashes[pair.first] >> 32;
    const uint64_t b = hashes[pair.second] >> 32;
    const float dot =
        signed_unit16(a) * signed_unit16(b) + signed_unit16(a >> 16) * signed_unit16(b >> 16);
    const float damping = kPairHead * kPairHead /
                          ((kPairHead + ranks[pair.first]) * (kPairHead + ranks[pair.second]));
    pair_sum += damping * dot;
  }
  return sum + id_scale * id_sum + pair_scale * pair_sum;
}

void SyntheticStream::generate(int64_t row, const Row& out) const {
  std::array<float, kFields> ranks;
  float label_draw = 0;
  const float probability = sigmoid(bias_ + scale_ * draw_row(row, out.dense, &ranks, &label_draw));
  *out.truth = probability;
  *out.label = label_draw < probability ? 1.0F : 0.0F;
  const double inverse = 1.0 / static_cast<double>(id_space_);
  for (int f = 0; f < kFields; ++f) {
    // id * multiplier mod id_space without a division: the quotient is off by at most one.
    const uint64_t id =
        static_cast<uint64_t>(fields_[f].first_id) + static_cast<uint64_t>(ranks[f]);
    const uint64_t product = id * multiplier_;
    const auto quotient = static_cast<int64_t>(static_cast<double>(product) * inverse);
    int64_t rest = static_cast<int64_t>(product) - quotient * id_space_;
    if (rest < 0) rest += id_space_;
    if (rest >= id_space_) rest -= id_space_;
    out.ids[f] = rest;
  }
}

double best_auc(const SyntheticStream& stream, int64_t first_row, int64_t rows) {
  std::vector<float> labels(rows);
  std::vector<float> truths(rows);
  std::array<float, kNumeric> dense;
  std::array<int64_t, kFields> ids;
  for (int64_t r = 0; r < rows; ++r) {
    stream.generate(first_row + r, {&labels[r], &truths[r], dense.data(), ids.data()});
  }
  const Result<double> best = auc(truths, labels);
  return best.ok() ? *best : 0.5;  // Too few rows to have both labels.
}

}  // namespace sidereal::data
