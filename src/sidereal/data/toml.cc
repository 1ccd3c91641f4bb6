#include "sidereal/data/toml.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>
#include <vector>

#include "sidereal/base/strings.h"

namespace sidereal::data {

using base::invalid_argument;
using Json = nlohmann::ordered_json;

namespace {

constexpr int kDepthMax = 32;

class TomlReader {
 public:
  TomlReader(std::string_view text, std::map<std::string, int>* lines)
      : rest_(text), lines_(lines) {}

  Result<Json> read() {
    Json root = Json::object();
    Json* table = &root;
    while (skip_to_something()) {
      if (take('[')) {
        SR_ASSIGN_OR_RETURN(table, open_table(&root));
      } else {
        SR_RETURN_IF_ERROR(read_pair(table, table == &root));
      }
      skip_blanks();
      if (!rest_.empty() && rest_[0] != '\n' && rest_[0] != '#') {
        return wrong("something stands behind the end of a value or table");
      }
    }
    return root;
  }

 private:
  template <class... Args>
  Status wrong(fmt::format_string<Args...> text, Args&&... args) const {
    return invalid_argument("line {}: {}", line_, fmt::format(text, std::forward<Args>(args)...));
  }

  bool take(char c) {
    if (rest_.empty() || rest_[0] != c) return false;
    if (c == '\n') ++line_;
    rest_.remove_prefix(1);
    return true;
  }

  void skip_blanks() {
    while (take(' ') || take('\t') || take('\r')) continue;
  }

  /// Over comments and line ends; false at the end.
  bool skip_to_something() {
    while (true) {
      skip_blanks();
      if (take('#')) {
        rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
      } else if (!take('\n')) {
        return !rest_.empty();
      }
    }
  }

  Result<Json*> open_table(Json* root) {
    if (take('[')) return wrong("lists of tables are not taken");
    SR_ASSIGN_OR_RETURN(const auto keys, read_keys());
    note_line(keys.front());
    if (!take(']')) return wrong("a table's name ends with ]");
    SR_ASSIGN_OR_RETURN(Json* const at, walk(root, keys));
    std::string name;
    for (const std::string& key : keys) name += key + '\n';
    for (const std::string& one : opened_) {
      if (one == name) return wrong("the table '{}' stands there twice", keys.back());
    }
    opened_.push_back(name);
    return at;
  }

  Result<Json*> walk(Json* at, const std::vector<std::string>& keys) const {
    for (const std::string& key : keys) {
      Json& next = (*at)[key];
      if (next.is_null()) next = Json::object();
      if (!next.is_object()) return wrong("'{}' has a value already", key);
      at = &next;
    }
    return at;
  }

  Status read_pair(Json* table, bool is_outermost) {
    SR_ASSIGN_OR_RETURN(auto keys, read_keys());
    if (is_outermost) note_line(keys.front());
    if (!take('=')) return wrong("'{}' is followed by no =", keys.back());
    const std::string last = std::move(keys.back());
    keys.pop_back();
    SR_ASSIGN_OR_RETURN(Json* const at, walk(table, keys));
    if (at->contains(last)) return wrong("'{}' stands there twice", last);
    skip_blanks();
    SR_ASSIGN_OR_RETURN((*at)[last], read_value(0));
    return {};
  }

  Result<std::vector<std::string>> read_keys() {
    std::vector<std::string> keys;
    do {
      skip_blanks();
      if (!rest_.empty() && (rest_[0] == '"' || rest_[0] == '\'')) {
        SR_ASSIGN_OR_RETURN(auto key, read_string());
        keys.push_back(std::move(key));
      } else {
        size_t end = 0;
        while (end < rest_.size() && is_bare(rest_[end])) ++end;
        if (end == 0) return wrong("a key is expected; others than a-z, 0-9, _ and - need quotes");
        keys.emplace_back(rest_.substr(0, end));
        rest_.remove_prefix(end);
      }
      skip_blanks();
    } while (take('.'));
    return keys;
  }

  void note_line(const std::string& key) {
    if (lines_ != nullptr) lines_->try_emplace(key, line_);
  }

  static bool is_bare(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  }

  /// The character of the four digits after a backslash and u, as UTF-8.
  Result<std::string> read_code_point() {
    const std::string_view digits = rest_.substr(0, 4);
    // JSON has the same escape.
    const Json read = Json::parse(fmt::format("\"\\u{}\"", digits), nullptr, false);
    if (digits.size() < 4 || !read.is_string())
      return wrong("\\u is followed by four hexadecimal digits of a character");
    rest_.remove_prefix(4);
    return read.get<std::string>();
  }

  Result<std::string> read_string() {
    const char quote = rest_[0];
    rest_.remove_prefix(1);
    std::string out;
    while (!rest_.empty() && rest_[0] != quote && rest_[0] != '\n') {
      const char c = rest_[0];
      rest_.remove_prefix(1);
      if (c != '\\' || quote == '\'') {
        out += c;
        continue;
      }
      if (take('u')) {
        SR_ASSIGN_OR_RETURN(const std::string one, read_code_point());
        out += one;
        continue;
      }
      constexpr std::string_view kEscapes = "\"\\tnr";
      constexpr std::string_view kMeant = "\"\\\t\n\r";
      const size_t at = rest_.empty() ? std::string_view::npos : kEscapes.find(rest_[0]);
      if (at == std::string_view::npos) {
        return wrong("a backslash in a string is followed by one of \" \\ t n r u");
      }
      out += kMeant[at];
      rest_.remove_prefix(1);
    }
    if (!take(quote)) return wrong("a string has no closing quote on its line");
    return out;
  }

  Result<Json> read_value(int depth) {
    if (rest_.empty()) return wrong("a value is expected");
    if (rest_[0] == '"' || rest_[0] == '\'') {
      SR_ASSIGN_OR_RETURN(auto text, read_string());
      return Json(std::move(text));
    }
    if (take('[')) return read_list(depth);
    const size_t end = std::min(rest_.find_first_of(" \t\r\n,]#"), rest_.size());
    const std::string word(rest_.substr(0, end));
    rest_.remove_prefix(end);
    if (word == "true" || word == "false") return Json(word == "true");
    if (const Result<int64_t> whole = base::parse_int(word); whole.ok()) return Json(*whole);
    const Result<double> number = base::parse_double(word);
    if (number.ok() && std::isfinite(*number)) return Json(*number);
    return wrong("'{}' is no value; texts stand in quotes", word);
  }

  Result<Json> read_list(int depth) {
    if (depth == kDepthMax) return wrong("lists in lists: at most {}", kDepthMax);
    Json out = Json::array();
    while (true) {
      if (!skip_to_something()) return wrong("a list has no ]");
      if (take(']')) return out;
      SR_ASSIGN_OR_RETURN(Json value, read_value(depth + 1));
      out.push_back(std::move(value));
      if (!skip_to_something()) return wrong("a list has no ]");
      if (take(']')) return out;
      if (!take(',')) return wrong("values of a list have commas between them");
    }
  }

  std::string_view rest_;
  int line_ = 1;
  std::map<std::string, int>* const lines_;
  std::vector<std::string> opened_;
};

}  // namespace

Result<Json> parse_toml(std::string_view text, std::map<std::string, int>* lines) {
  return TomlReader(text, lines).read();
}

std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    switch (c) {
      case '\t':
        out += "\\t";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      default:
        // TOML has no other control characters in a text; terminals would obey them.
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          out += fmt::format("\\u{:04X}", static_cast<unsigned char>(c));
        } else {
          out += c;
        }
    }
  }
  return out + '"';
}

}  // namespace sidereal::data
