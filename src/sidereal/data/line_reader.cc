#include "sidereal/data/line_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "sidereal/data/table_formats.h"

namespace sidereal::data {
namespace {

constexpr size_t kReadBytes = size_t{256} << 10;
constexpr size_t kNone = static_cast<size_t>(-1);

}  // namespace

Result<std::unique_ptr<LineReader>> LineReader::open(const std::string& path, bool quoted,
                                                     const std::atomic<bool>* stop) {
  SR_ASSIGN_OR_RETURN(auto source, open_bytes(path, stop));
  return std::make_unique<LineReader>(path, std::move(source), quoted);
}

Result<std::unique_ptr<LineReader>> LineReader::open_table(const std::string& file, char delimiter,
                                                           const std::atomic<bool>* stop) {
  SR_ASSIGN_OR_RETURN(auto source, data::open_table(file, delimiter, stop));
  return std::make_unique<LineReader>(file, std::move(source), /*quoted=*/true,
                                      table_file(file).format->is_text);
}

LineReader::LineReader(std::string path, std::unique_ptr<ByteSource> source, bool quoted,
                       bool is_text)
    : path_(std::move(path)),
      source_(std::move(source)),
      quoted_(quoted),
      is_text_(is_text),
      buffer_(kReadBytes) {}

std::string LineReader::place() const {
  if (is_text_) return fmt::format("{}:{}", path_, line_);
  return rows_ > 1 ? fmt::format("{}: row {}", path_, rows_ - 1) : path_;
}

Status LineReader::fill() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == buffer_.size()) {
    if (end_ > kRowBytesMax) {
      return base::invalid_argument(
          "{}:{}: a row longer than {} bytes; is this a text file with a closing quote for every "
          "quote?",
          path_, lines_read_ + 1, kRowBytesMax);
    }
    buffer_.resize(buffer_.size() * 2);
  }
  SR_ASSIGN_OR_RETURN(const size_t n,
                      source_->read(std::span<char>(buffer_.data() + end_, buffer_.size() - end_)));
  end_ += n;
  ended_ = n == 0;
  return {};
}

// Where the line that begins `from` bytes after begin_ ends (the place of LF, or the end of the
// file), relative to begin_; kNone when there is nothing left.
Result<size_t> LineReader::find_line_end(size_t from) {
  size_t searched = from;
  while (true) {
    const char* start = buffer_.data() + begin_ + searched;
    const size_t length = end_ - begin_ - searched;
    const void* hit = length == 0 ? nullptr : std::memchr(start, '\n', length);
    if (hit != nullptr) {
      return static_cast<size_t>(static_cast<const char*>(hit) - (buffer_.data() + begin_));
    }
    searched = end_ - begin_;
    if (ended_) return searched > from ? searched : kNone;
    SR_RETURN_IF_ERROR(fill());
  }
}

Result<bool> LineReader::next_line(std::string_view* row) {
  line_ = lines_read_ + 1;
  size_t line_begin = 0;
  size_t quotes = 0;
  size_t line_end = 0;
  while (true) {
    SR_ASSIGN_OR_RETURN(line_end, find_line_end(line_begin));
    if (line_end == kNone) {
      if (line_begin == 0) return false;
      line_end = line_begin - 1;  // An open quote at the end of the file: the parser complains.
      break;
    }
    ++lines_read_;
    if (!quoted_) break;
    const char* data = buffer_.data() + begin_;
    if (quotes > 0 || std::memchr(data + line_begin, '"', line_end - line_begin) != nullptr) {
      quotes += static_cast<size_t>(std::count(data + line_begin, data + line_end, '"'));
    }
    if (quotes % 2 == 0) break;
    line_begin = line_end + 1;
    if (begin_ + line_begin > end_) break;
  }
  const char* data = buffer_.data() + begin_;
  size_t length = line_end;
  if (length > 0 && data[length - 1] == '\r') --length;
  *row = std::string_view(data, length);
  begin_ = std::min(begin_ + line_end + 1, end_);
  ++rows_;
  return true;
}

Result<bool> LineReader::next(std::string_view* row) {
  while (true) {
    SR_ASSIGN_OR_RETURN(const bool more, next_line(row));
    if (!more) return false;
    if (!row->empty()) return true;
  }
}

}  // namespace sidereal::data
