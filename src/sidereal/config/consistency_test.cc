#include "sidereal/config/consistency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sidereal::config {
namespace {

using ::testing::HasSubstr;

TEST(Consistency, every_form_is_read_and_written_as_it_was) {
  for (const char* text : {"async", "sync", "sync(2 of 3)", "bounded(0)", "bounded(7)", "hybrid",
                           "geo(1)", "geo(25)"}) {
    const Result<Consistency> read = parse_consistency(text);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->to_string(), text);
  }
  EXPECT_EQ(parse_consistency(" sync ( 2  of  3 ) ")->to_string(), "sync(2 of 3)");
  EXPECT_EQ(Consistency().to_string(), consistency_forms().front().form);
}

TEST(Consistency, what_replicas_have_in_common_follows_from_the_form) {
  EXPECT_FALSE(parse_consistency("async")->waits());
  EXPECT_TRUE(parse_consistency("bounded(1)")->waits());
  EXPECT_FALSE(parse_consistency("bounded(1)")->is_in_step());
  EXPECT_TRUE(parse_consistency("bounded(0)")->is_in_step());
  EXPECT_TRUE(parse_consistency("sync(1 of 2)")->is_in_step());
  EXPECT_TRUE(parse_consistency("sync(1 of 2)")->has_spares());
  EXPECT_TRUE(parse_consistency("hybrid")->is_in_step());
  EXPECT_FALSE(parse_consistency("hybrid")->has_spares());
  EXPECT_FALSE(parse_consistency("geo(4)")->waits());
  EXPECT_FALSE(parse_consistency("geo(4)")->is_in_step());
  EXPECT_TRUE(parse_consistency("geo(4)")->is_geo());
}

TEST(Consistency, other_text_is_refused_with_the_forms_there_are) {
  for (const char* text : {"", "asynch", "sync(", "sync()", "sync(2)", "sync(two of 3)", "bounded",
                           "bounded()", "bounded(1", "bounded(x)", "hybrid(1)", "hybrids", "geo",
                           "geo()", "geo(x)", "geo(1 of 2)"}) {
    const Status status = parse_consistency(text).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    for (const ConsistencyForm& known : consistency_forms()) {
      EXPECT_THAT(base::message_of(status), HasSubstr(known.form)) << text;
    }
  }
}

TEST(Consistency, numbers_that_no_form_has_are_refused) {
  for (const char* text :
       {"sync(0 of 2)", "sync(3 of 2)", "sync(-1 of 2)", "sync(1 of 99999999)", "bounded(-1)",
        "bounded(99999999)", "geo(0)", "geo(-1)", "geo(99999999)"}) {
    EXPECT_EQ(parse_consistency(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(Consistency, is_checked_against_the_lanes_there_are) {
  const auto error = [](const char* text, int64_t replicas, int64_t steps_in_flight) {
    return base::message_of(check_consistency(*parse_consistency(text), replicas, steps_in_flight));
  };
  EXPECT_EQ(error("async", 4, 8), "");
  EXPECT_EQ(error("sync", 4, 1), "");
  EXPECT_EQ(error("sync(2 of 4)", 4, 1), "");
  EXPECT_THAT(error("sync(2 of 4)", 3, 1), HasSubstr("3 replicas"));
  EXPECT_THAT(error("sync", 4, 2), HasSubstr("steps_in_flight is 2"));
  EXPECT_EQ(error("hybrid", 4, 1), "");
  EXPECT_THAT(error("hybrid", 4, 2), HasSubstr("consistency 'hybrid'"));
  EXPECT_THAT(error("bounded(3)", 4, 2), HasSubstr("steps_in_flight is 2"));
  EXPECT_THAT(error("geo(3)", 4, 2), HasSubstr("steps_in_flight is 2"));
}

}  // namespace
}  // namespace sidereal::config
