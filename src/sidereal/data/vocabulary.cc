#include "sidereal/data/vocabulary.h"

#include <farmhash.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <unordered_set>
#include <utility>

#include "sidereal/base/printable.h"
#include "sidereal/base/strings.h"
#include "sidereal/parse/text.h"

namespace sidereal::data {

using base::invalid_argument;

namespace {

/// Between the texts of a cross.
constexpr char kCrossSeparator = '\x1f';
/// TensorFlow's key of crosses that are hashed.
constexpr uint64_t kCrossKey = 0xDECAFCAFFE;

uint64_t fingerprint(std::string_view text) {
  return util::Fingerprint64(text.data(), text.size());
}

uint64_t mixed(uint64_t x) { return x ^ (x >> 47); }

/// FarmHash's FingerprintCat64 as TensorFlow has it.
uint64_t joined_fingerprints(uint64_t first, uint64_t second) {
  constexpr uint64_t kMultiplier = 0xC6A4A7935BD1E995;
  uint64_t result = (first ^ kMultiplier) ^ (mixed(second * kMultiplier) * kMultiplier);
  result *= kMultiplier;
  return mixed(mixed(result) * kMultiplier);
}

/// How many bytes the character at the beginning of a text has in UTF-8; 0 when it is none.
size_t utf8_length(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = at(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xC0) != 0x80) return 0;
  }
  // Longer than need be, halves of pairs, and beyond the last character.
  const unsigned char second = at(1);
  const bool is_wrong = (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
                        (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F);
  return is_wrong ? 0 : length;
}

/// "key=value" parts behind the first ones of an option.
Result<std::pair<std::string, std::string>> split_setting(const std::string& option,
                                                          const std::string& text,
                                                          const std::string& part) {
  const size_t equals = part.find('=');
  if (equals != std::string::npos && equals > 0) {
    return std::make_pair(part.substr(0, equals), part.substr(equals + 1));
  }
  return invalid_argument("{}: '{}' in '{}' is not NAME=VALUE", option, part, text);
}

}  // namespace

bool is_token(std::string_view text) {
  if (text.empty()) return false;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0 || text.front() == '\n' || text.front() == '\r' || text.front() == '\0') {
      return false;
    }
    text.remove_prefix(length);
  }
  return true;
}

Result<std::vector<std::string>> read_vocabulary(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  if (!file) return base::not_found("cannot read the vocabulary file {}", path);
  std::vector<std::string> tokens;
  std::unordered_set<std::string> seen;
  std::string line;
  while (std::getline(content, line)) {
    if (line.ends_with('\r')) line.pop_back();
    const size_t number = tokens.size() + 1;
    if (!is_token(line)) {
      return invalid_argument("{}:{}: {} is no token; each line has one, in UTF-8", path, number,
                              parse::shown(line));
    }
    if (!seen.insert(line).second) {
      return invalid_argument("{}:{}: the token {} stands there twice", path, number,
                              parse::shown(line));
    }
    tokens.push_back(line);
  }
  if (tokens.empty()) return invalid_argument("the vocabulary file {} has no tokens", path);
  return tokens;
}

std::string vocabulary_text(const Vocabulary& vocabulary) {
  std::string text;
  for (const std::string& token : vocabulary.tokens) text += token + "\n";
  return text;
}

std::string vocabulary_file_name(const std::string& column) {
  std::string name = "vocabulary_" + column + ".txt";
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

Result<Vocabulary> parse_vocabulary_option(const std::string& text) {
  std::string rest = text;
  Vocabulary out;
  // From the end, so that names of columns and files may have colons.
  while (true) {
    const size_t colon = rest.rfind(':');
    if (colon == std::string::npos) break;
    const std::string part = rest.substr(colon + 1);
    if (!part.starts_with("max=") && !part.starts_with("oov=")) break;
    const Result<int64_t> number = base::parse_int(part.substr(4));
    if (!number.ok()) {
      return invalid_argument("--vocabulary: '{}' in '{}' is no number", part, text);
    }
    (part.starts_with("max=") ? out.max_tokens : out.num_oov_indices) = *number;
    if (part.starts_with("max=") && *number < 1) {
      return invalid_argument("--vocabulary: '{}' in '{}'; it must be 2 or more", part, text);
    }
    rest.resize(colon);
  }
  const size_t equals = rest.find('=');
  out.column = std::string(base::trim(rest.substr(0, equals)));
  if (out.column.empty()) {
    return invalid_argument("--vocabulary: '{}' is not COLUMN[=FILE|auto][:max=N][:oov=K]", text);
  }
  const std::string source = equals == std::string::npos ? "auto" : rest.substr(equals + 1);
  if (source != "auto") {
    SR_ASSIGN_OR_RETURN(out.tokens, read_vocabulary(source));
    cut_to_max(&out);
  }
  SR_RETURN_IF_ERROR(check_vocabulary(out));
  return out;
}

Status check_vocabulary(const Vocabulary& v) {
  if (v.num_oov_indices < 1 || v.num_oov_indices > kHashBucketsMax) {
    return invalid_argument(
        "the vocabulary of column '{}' has {} numbers for texts that are not in it; it must be 1 "
        "or more",
        v.column, v.num_oov_indices);
  }
  if (v.max_tokens < 0 || (v.max_tokens > 0 && v.max_tokens <= v.num_oov_indices)) {
    return invalid_argument(
        "the vocabulary of column '{}' has at most {} numbers, {} of them for texts that are not "
        "in it; make it more, or 0 for no limit",
        v.column, v.max_tokens, v.num_oov_indices);
  }
  std::unordered_set<std::string_view> seen;
  for (const std::string& token : v.tokens) {
    if (!is_token(token) || !seen.insert(token).second) {
      return invalid_argument(
          "the vocabulary of column '{}' has {}, which {}", v.column, parse::shown(token),
          is_token(token) ? "stands there twice" : "is not UTF-8 of one line, or empty");
    }
  }
  return {};
}

void cut_to_max(Vocabulary* vocabulary) {
  const int64_t most = vocabulary->max_tokens - vocabulary->num_oov_indices;
  if (vocabulary->max_tokens > 0 && static_cast<int64_t>(vocabulary->tokens.size()) > most) {
    vocabulary->tokens.resize(static_cast<size_t>(std::max<int64_t>(most, 0)));
  }
}

Result<Sequence> parse_sequence_option(const std::string& text) {
  std::string rest = text;
  Sequence out;
  while (true) {
    const size_t colon = rest.rfind(':');
    if (colon == std::string::npos) break;
    const std::string part = rest.substr(colon + 1);
    if (part.find('=') == std::string::npos) break;
    SR_ASSIGN_OR_RETURN(const auto setting, split_setting("--sequence", text, part));
    const auto& [key, value] = setting;
    if (key == "padding") {
      out.padding = value;
    } else if (key == "truncating") {
      out.truncating = value;
    } else if (key == "like") {
      out.like = value;
    } else {
      return invalid_argument("--sequence: '{}' in '{}'; there are padding, truncating and like",
                              part, text);
    }
    rest.resize(colon);
  }
  const size_t last = rest.rfind(':');
  const Result<int64_t> length =
      base::parse_int(last == std::string::npos ? "" : rest.substr(last + 1));
  if (!length.ok() || last < 3 || rest[last - 2] != ':') {
    return invalid_argument(
        "--sequence: '{}' is not COLUMN:CHARACTER:N, as in 'history:|:50:like=item'", text);
  }
  out.column = rest.substr(0, last - 2);
  out.separator = rest[last - 1];
  out.max_length = *length;
  SR_RETURN_IF_ERROR(check_sequence(out));
  return out;
}

Status check_sequence(const Sequence& s) {
  if (s.max_length < 1 || s.max_length > kMultiHotMax) {
    return invalid_argument("column '{}' has up to {} values in a cell; it must be from 1 to {}",
                            s.column, s.max_length, kMultiHotMax);
  }
  for (const std::string* const side : {&s.padding, &s.truncating}) {
    if (*side == "pre" || *side == "post") continue;
    return invalid_argument("the sequence '{}': {} is '{}'; it must be pre or post", s.column,
                            side == &s.padding ? "padding" : "truncating", *side);
  }
  return {};
}

Result<Negatives> parse_negatives_option(const std::string& text) {
  constexpr std::string_view kSampler = ":sampler=";
  // A column's name may have both characters itself.
  const size_t colon = std::min(text.rfind(kSampler), text.size());
  const size_t equals = std::min(text.rfind('=', colon == 0 ? 0 : colon - 1), colon);
  Negatives out;
  out.column = std::string(base::trim(text.substr(0, equals)));
  const Result<int64_t> count = base::parse_int(
      equals == colon ? "" : base::trim(text.substr(equals + 1, colon - equals - 1)));
  if (out.column.empty() || !count.ok()) {
    return invalid_argument(
        "--negatives: '{}' is not COLUMN=N[:sampler=NAME], as in 'item=4:sampler=uniform'", text);
  }
  out.count = *count;
  if (colon < text.size()) out.sampler = text.substr(colon + kSampler.size());
  SR_RETURN_IF_ERROR(base::with_context(check_negatives(out), "--negatives"));
  return out;
}

Status check_negatives(const Negatives& n) {
  if (n.column.empty()) return {};
  if (n.count < 1 || n.count > kNegativesMax) {
    return invalid_argument("column '{}' is to have {} negatives of a row; it must be from 1 to {}",
                            n.column, n.count, kNegativesMax);
  }
  if (n.sampler == "popularity" || n.sampler == "uniform") return {};
  return invalid_argument(
      "negatives of column '{}' are sampled by '{}'; it must be popularity or uniform", n.column,
      n.sampler);
}

FieldIds::FieldIds(int64_t field, int64_t first, const Vocabulary& vocabulary)
    : field_(field), first_(first), num_oov_indices_(vocabulary.num_oov_indices) {
  auto tokens = std::make_shared<Tokens>();
  tokens->reserve(vocabulary.tokens.size());
  for (const std::string& token : vocabulary.tokens) {
    tokens->emplace(token, num_oov_indices_ + static_cast<int64_t>(tokens->size()));
  }
  size_ = num_oov_indices_ + static_cast<int64_t>(tokens->size());
  tokens_ = std::move(tokens);
}

int64_t FieldIds::id(std::string_view text) const {
  if (tokens_ == nullptr) {
    if (hash_ == Hash::kXxh3) return base::category_id(text, field_, size_) + shift();
    return first_ + static_cast<int64_t>(fingerprint(text) % static_cast<uint64_t>(size_));
  }
  if (const auto at = tokens_->find(text); at != tokens_->end()) return first_ + at->second;
  if (num_oov_indices_ == 1) return first_;
  return first_ + static_cast<int64_t>(fingerprint(text) % static_cast<uint64_t>(num_oov_indices_));
}

int64_t FieldIds::crossed(const std::vector<std::string>& texts,
                          const std::vector<bool>& are_numbers) const {
  if (hash_ == Hash::kXxh3) {
    std::string joined;
    for (size_t i = 0; i < texts.size(); ++i) {
      if (i > 0) joined += kCrossSeparator;
      joined += texts[i];
    }
    return id(joined);
  }
  uint64_t found = kCrossKey;
  for (size_t i = 0; i < texts.size(); ++i) {
    const Result<int64_t> number =
        are_numbers[i] ? base::parse_int(texts[i]) : Result<int64_t>(int64_t{0});
    found = joined_fingerprints(
        found, are_numbers[i] ? static_cast<uint64_t>(*number) : fingerprint(texts[i]));
  }
  return first_ + static_cast<int64_t>(found % static_cast<uint64_t>(size_));
}

}  // namespace sidereal::data
