#include "sidereal/parse/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sidereal::parse {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Fields = std::vector<std::string>;

Fields split(std::string_view record, const CsvStyle& style = {}) {
  std::vector<std::string_view> fields;
  std::string scratch;
  const Status status = split_csv(record, style, &fields, &scratch);
  EXPECT_TRUE(status.ok()) << status;
  return {fields.begin(), fields.end()};
}

std::string error(std::string_view record, const CsvStyle& style = {}) {
  std::vector<std::string_view> fields;
  std::string scratch;
  return base::message_of(split_csv(record, style, &fields, &scratch));
}

TEST(Csv, cuts_at_the_delimiter) {
  EXPECT_THAT(split("a,,b"), ElementsAre("a", "", "b"));
  EXPECT_THAT(split(""), ElementsAre(""));
  EXPECT_THAT(split(","), ElementsAre("", ""));
  EXPECT_THAT(split("a,b|c", {.delimiter = '|'}), ElementsAre("a,b", "c"));
}

TEST(Csv, takes_quotes_off) {
  EXPECT_THAT(split(R"("a,b","say ""x""","",c)"), ElementsAre("a,b", R"(say "x")", "", "c"));
  EXPECT_THAT(split("\"line\nbreak\",x", {.strict = true}), ElementsAre("line\nbreak", "x"));
  EXPECT_THAT(split(R"("a","b)", {.quotes = false}), ElementsAre("\"a\"", "\"b"));
}

TEST(Csv, says_which_field_is_wrong) {
  EXPECT_THAT(error(R"(a,"b)"), HasSubstr("field 2 opens a quote that never closes"));
  EXPECT_THAT(error(R"("a"b,c)"), HasSubstr("field 1 goes on after its closing quote"));
}

TEST(Csv, lets_quotes_stand_in_fields_without_quotes_unless_strict) {
  EXPECT_THAT(split("a\"b,c"), ElementsAre("a\"b", "c"));
  EXPECT_THAT(error("c,a\"b", {.strict = true}), HasSubstr("field 2 has a quote in it"));
  EXPECT_THAT(error("a\n,b", {.strict = true}), HasSubstr("field 1 has a line end in it"));
}

}  // namespace
}  // namespace sidereal::parse
