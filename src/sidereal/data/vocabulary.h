#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sidereal/base/category_id.h"
#include "sidereal/base/status.h"
#include "sidereal/data/data_spec.h"

namespace sidereal::data {

/// Whether a text can be a token: UTF-8 of one line that is not empty, since vocabularies are files
/// of lines and travel as JSON.
bool is_token(std::string_view text);

/// The tokens of a file that has one in each line. kNotFound, or kInvalidArgument naming the line,
/// for what is no token or stands there twice.
Result<std::vector<std::string>> read_vocabulary(const std::string& path);

/// A vocabulary as a file of lines.
std::string vocabulary_text(const Vocabulary& vocabulary);
/// What the file of a column's vocabulary is called beside checkpoints: "vocabulary_city.txt".
std::string vocabulary_file_name(const std::string& column);

/// "genres=auto:max=1000:oov=2" or "genres=words.txt" as the vocabulary of a column, whose file is
/// read.
Result<Vocabulary> parse_vocabulary_option(const std::string& text);
/// kInvalidArgument for numbers that make no sense, and for what is no token.
Status check_vocabulary(const Vocabulary& vocabulary);
/// Leaves out the last tokens of one that is above its max_tokens.
void cut_to_max(Vocabulary* vocabulary);
/// "history:|:50[:padding=pre][:truncating=pre][:like=item]" as a column of sequences.
Result<Sequence> parse_sequence_option(const std::string& text);
Status check_sequence(const Sequence& sequence);
/// "item=4[:sampler=uniform]" as negatives.
Result<Negatives> parse_negatives_option(const std::string& text);
Status check_negatives(const Negatives& negatives);

/// The numbers that the texts of one field have: by a hash, or by a vocabulary. A vocabulary has
/// first its `num_oov_indices` numbers for texts that are not in it, chosen by FarmHash, then its
/// tokens in order: the numbers of a StringLookup.
class FieldIds {
 public:
  /// The field `field`, whose ids begin at `first`, by hash.
  FieldIds(int64_t field, int64_t first, Hash hash, int64_t buckets)
      : field_(field), first_(first), size_(buckets), hash_(hash) {}
  FieldIds(int64_t field, int64_t first, const Vocabulary& vocabulary);

  [[nodiscard]] int64_t first() const { return first_; }
  /// How many ids the field has.
  [[nodiscard]] int64_t size() const { return size_; }
  /// What has to be added to category_id() of its field.
  [[nodiscard]] int64_t shift() const { return first_ - field_ * size_; }
  [[nodiscard]] bool has_vocabulary() const { return tokens_ != nullptr; }
  /// The first id of a token; without a vocabulary there are none.
  [[nodiscard]] int64_t first_token() const { return first_ + num_oov_indices_; }
  [[nodiscard]] int64_t num_tokens() const {
    return has_vocabulary() ? size_ - num_oov_indices_ : 0;
  }
  [[nodiscard]] bool is_plain() const { return tokens_ == nullptr && hash_ == Hash::kXxh3; }
  [[nodiscard]] int64_t id(std::string_view text) const;
  /// The id of what several features are together: a hash of their texts joined, or with FarmHash
  /// of their fingerprints, as a HashedCrossing has it; that of a number is the number.
  [[nodiscard]] int64_t crossed(const std::vector<std::string>& texts,
                                const std::vector<bool>& are_numbers) const;

 private:
  struct TextHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return base::hash64(text); }
  };
  using Tokens = std::unordered_map<std::string, int64_t, TextHash, std::equal_to<>>;

  int64_t field_;
  int64_t first_;
  int64_t size_;
  int64_t num_oov_indices_ = 1;
  Hash hash_ = Hash::kXxh3;
  std::shared_ptr<const Tokens> tokens_;
};

}  // namespace sidereal::data
