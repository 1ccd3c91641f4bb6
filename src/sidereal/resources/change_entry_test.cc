#include "sidereal/resources/change_entry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <tuple>
#include <vector>

#include "sidereal/base/hash.h"
#include "sidereal/tensor/strings.h"

namespace sidereal::resources {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr EntryHead kHead = {
    .kind = EntryKind::kChanges, .lane = 3, .to = {.incarnation = 77, .cut = 12}, .from = 11};

std::string hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) out += fmt::format("{:02x}", static_cast<uint8_t>(c));
  return out;
}

/// Puts rows of `value` in.
void put_rows(EntryWriter* to, std::string_view name, const Tensor& value,
              const std::vector<int64_t>& rows) {
  const Rows from = Rows::of(value);
  to->put_rows(name, 5, value.dtype(), value.shape(), rows,
               [&](size_t i) { return from.at + rows[i] * from.stride; });
}

/// One section of each kind.
std::string example() {
  const Tensor w = Tensor::of<float>(Shape{300, 2}, std::vector<float>(600, 1.5F));
  EntryWriter to(kHead);
  to.put_value("step", 1, Tensor::scalar(int64_t{9}));
  to.put_value("names", 2, Tensor::strings(Shape{2}, std::vector<std::string>{"a", ""}));
  put_rows(&to, "w", w, {0, 1, 299});
  put_rows(&to, "w/Adagrad", w, {0, 1, 299});
  put_rows(&to, "v", w, {2});
  to.put_gone("old", 3);
  to.put_keys("t", 4, Tensor::of<int64_t>(Shape{2}, {-1, 8}),
              Tensor::of<float>(Shape{2, 2}, {1, 2, 3, 4}), Tensor::of<int64_t>(Shape{1}, {5}));
  to.put_keys("s", 6, Tensor::strings(Shape{1}, std::vector<std::string>{"key"}),
              Tensor::strings(Shape{1}, std::vector<std::string>{"value"}),
              Tensor::strings(Shape{0}, std::vector<std::string>{}));
  const std::array<NotedChange, 1> made = {{{.closure = {.client = 1, .closure = 2}, .change = 3}}};
  to.put_made("w", 5, made);
  to.put_all_made("v", 5, "all");
  to.put_pushed({.life = 7, .lane = 3, .number = 20, .pushes = 19, .rows = 400});
  return std::move(to).finish();
}

TEST(ChangeEntry, is_read_as_it_was_written) {
  const std::string bytes = example();
  const Result<Entry> read = decode_entry(bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->head, kHead);
  ASSERT_EQ(read->sections.size(), 11);
  const PushedSoFar& pushed = read->sections[10].pushed;
  EXPECT_EQ(std::tuple(pushed.life, pushed.lane, pushed.number, pushed.pushes, pushed.rows),
            std::tuple(7, 3, 20, 19, 400));
  const std::vector<Section>& sections = read->sections;
  EXPECT_EQ(value_of(sections[0])->data<const int64_t>()[0], 9);
  EXPECT_EQ(value_of(sections[1])->data<const std::string_view>()[0], "a");
  EXPECT_THAT(sections[2].rows, ElementsAre(0, 1, 299));
  EXPECT_EQ(sections[2].shape, (Shape{300, 2}));
  EXPECT_EQ(sections[2].bytes.size(), 24);
  EXPECT_EQ(sections[3].name, "w/Adagrad");
  EXPECT_THAT(sections[3].rows, ElementsAre(0, 1, 299));
  EXPECT_THAT(sections[4].rows, ElementsAre(2));
  EXPECT_EQ(sections[5].kind, SectionKind::kGone);
  EXPECT_EQ(sections[6].keys.data<const int64_t>()[0], -1);
  EXPECT_EQ(sections[6].values.data<const float>()[3], 4);
  EXPECT_EQ(sections[6].removed.data<const int64_t>()[0], 5);
  EXPECT_EQ(sections[7].values.data<const std::string_view>()[0], "value");
  EXPECT_EQ(sections[8].made[0].closure.closure, 2);
  EXPECT_EQ(sections[9].bytes, "all");
  EntryWriter again(read->head);
  for (const Section& section : sections) again.put(section);
  EXPECT_EQ(hex(std::move(again).finish()), hex(bytes));
}

TEST(ChangeEntry, has_the_bytes_that_the_page_says) {
  EntryWriter to(kHead);
  put_rows(&to, "w", Tensor::of<uint8_t>(Shape{200, 1}, std::vector<uint8_t>(200, 0xaa)), {1, 130});
  put_rows(&to, "v", Tensor::of<uint8_t>(Shape{200, 1}, std::vector<uint8_t>(200, 0xbb)), {1, 130});
  to.put_gone("u", 6);
  const std::string bytes = std::move(to).finish();
  const std::string want =
      // Head.
      "5352434c"
      "0100"
      "00"
      "00"
      "03000000"
      "4d00000000000000"
      "0b00000000000000"
      "0c00000000000000"
      // Rows 1 and 130 of w: gaps 1 and 128.
      "02"
      "01000000"
      "77"
      "0500000000000000"
      "05"
      "0200"
      "c800000000000000"
      "0100000000000000"
      "00"
      "0200000000000000"
      "0300000000000000"
      "018001"
      "0200000000000000"
      "aaaa"
      // The same of v.
      "02"
      "01000000"
      "76"
      "0500000000000000"
      "05"
      "0200"
      "c800000000000000"
      "0100000000000000"
      "01"
      "0200000000000000"
      "bbbb"
      // u is gone; the end.
      "03"
      "01000000"
      "75"
      "0600000000000000"
      "00";
  EXPECT_EQ(hex(bytes.substr(0, bytes.size() - 8)), want);
  const uint64_t checksum = base::hash64(std::string_view(bytes).substr(0, bytes.size() - 8));
  EXPECT_EQ(bytes.substr(bytes.size() - 8),
            std::string_view(reinterpret_cast<const char*>(&checksum), 8));
}

TEST(ChangeEntry, that_was_changed_or_cut_is_refused) {
  const std::string bytes = example();
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_EQ(decode_entry(changed).status().code(), StatusCode::kDataLoss) << "byte " << i;
    EXPECT_EQ(decode_entry(std::string_view(bytes).substr(0, i)).status().code(),
              StatusCode::kDataLoss)
        << i << " bytes";
  }
}

/// `bytes`, changed at `at`, with the checksum that fits.
std::string with(std::string bytes, size_t at, uint8_t to) {
  bytes.resize(bytes.size() - 8);
  bytes[at] = static_cast<char>(to);
  const uint64_t checksum = base::hash64(bytes);
  return bytes.append(reinterpret_cast<const char*>(&checksum), 8);
}

TEST(ChangeEntry, of_another_format_is_refused_by_number) {
  EXPECT_THAT(base::message_of(decode_entry(with(example(), 4, 2)).status()),
              HasSubstr("format 2; this release reads 1"));
}

TEST(ChangeEntry, has_rows_of_its_value_in_order) {
  EntryWriter to(kHead);
  put_rows(&to, "w", Tensor::of<uint8_t>(Shape{4, 1}, {1, 2, 3, 4}), {1, 3});
  const std::string bytes = std::move(to).finish();
  // Gaps are the last two bytes before u64 bytes, two elements, the end and the checksum.
  const size_t gaps = bytes.size() - 8 - 1 - 2 - 8 - 2;
  ASSERT_TRUE(decode_entry(with(bytes, gaps + 1, 1)).ok());
  EXPECT_THAT(base::message_of(decode_entry(with(bytes, gaps + 1, 2)).status()),
              HasSubstr("'w': row 4 of 4"));
}

TEST(ChangeEntry, has_one_form) {
  EntryWriter to(kHead);
  put_rows(&to, "w", Tensor::of<uint8_t>(Shape{300, 1}, std::vector<uint8_t>(300)), {1, 200});
  const std::string bytes = std::move(to).finish();
  // Gaps are 1 and 198, in two groups, before u64 bytes, two elements, the end and the checksum.
  const size_t last = bytes.size() - 8 - 1 - 2 - 8 - 1;
  ASSERT_EQ(bytes[last], 1);
  EXPECT_THAT(base::message_of(decode_entry(with(bytes, last, 0)).status()),
              HasSubstr("more groups than it needs"));
}

TEST(ChangeEntry, goes_forward) {
  EntryWriter to({.to = {.incarnation = 1, .cut = 5}, .from = 5});
  EXPECT_THAT(base::message_of(decode_entry(std::move(to).finish()).status()),
              HasSubstr("from cut 5 to 5"));
}

}  // namespace
}  // namespace sidereal::resources
