#include "sidereal/data/reader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "sidereal/data/testing/files.h"

namespace sidereal::data {
namespace {

using testing::HasSubstr;

constexpr int kRowsPerFile = 57;

// `files` CSV files whose rows hold the ids 0, 1, 2, ... in order.
DataSpec numbered_csv(const TestFolder& folder, int files) {
  DataSpec spec;
  spec.id_space = files * kRowsPerFile;
  for (int f = 0; f < files; ++f) {
    std::string text = "label,id\n";
    for (int r = 0; r < kRowsPerFile; ++r) {
      text += fmt::format("{},{}\n", r % 2, f * kRowsPerFile + r);
    }
    spec.files.push_back(folder.write(fmt::format("{}.csv", f), text));
  }
  return spec;
}

// The same rows as libsvm, where rows differ in length.
DataSpec numbered_libsvm(const TestFolder& folder) {
  DataSpec spec;
  spec.format = Format::kLibsvm;
  spec.id_space = 1000;
  std::string text;
  for (int r = 0; r < kRowsPerFile; ++r) {
    text += fmt::format("{}", r % 2);
    for (int i = 0; i <= r % 4; ++i) text += fmt::format(" {}:{}", r, i);
    text += "\n";
  }
  spec.files = {folder.write("a.svm", text)};
  return spec;
}

ReadOptions part_of(int64_t index, int64_t count, int64_t batch_size = 10) {
  ReadOptions options;
  options.part = {index, count};
  options.batch_size = batch_size;
  return options;
}

std::vector<std::string> sorted(std::vector<std::string> rows) {
  std::sort(rows.begin(), rows.end());
  return rows;
}

/// What a reader gives that begins behind `before` rows.
std::vector<std::string> rows_behind(const DataSpec& spec, ReadOptions options, int64_t before) {
  options.rows_before = before;
  const auto rows = rows_of(spec, options);
  EXPECT_TRUE(rows.ok()) << rows.status();
  return rows.ok() ? *rows : std::vector<std::string>();
}

/// That a reader which begins in the middle goes on as one would that has come there.
void expect_goes_on(const DataSpec& spec, const ReadOptions& options) {
  const std::vector<std::string> all = *rows_of(spec, options);
  for (size_t before = 0; before <= all.size() + 1; ++before) {
    const auto from = all.begin() + static_cast<int64_t>(std::min(before, all.size()));
    EXPECT_EQ(rows_behind(spec, options, static_cast<int64_t>(before)),
              std::vector<std::string>(from, all.end()))
        << before << " of " << all.size();
  }
}

TEST(Reader, BeginsInTheMiddleOfAPassOfText) {
  const TestFolder folder;
  for (const int64_t shuffle_rows : {0, 13}) {
    DataSpec spec = numbered_csv(folder, 3);
    spec.shuffle_rows = shuffle_rows;
    ReadOptions options = part_of(1, 2);
    options.epoch = 3;
    expect_goes_on(spec, options);
    expect_goes_on(spec, part_of(2, 7));
    DataSpec ragged = numbered_libsvm(folder);
    ragged.shuffle_rows = shuffle_rows;
    expect_goes_on(ragged, part_of(0, 2));
  }
}

TEST(Reader, BeginsInTheMiddleOfTextWithBadRowsThatItDoesNotTellOfAgain) {
  const TestFolder folder;
  DataSpec spec;
  std::string text = "label,id\n";
  for (int r = 0; r < 40; ++r) text += r % 7 == 3 ? "no row\n" : fmt::format("1,{}\n", r);
  spec.files = {folder.write("bad.csv", text)};
  spec.id_space = 100;
  spec.bad_rows = BadRows::kSkip;
  for (const int64_t shuffle_rows : {0, 5}) {
    spec.shuffle_rows = shuffle_rows;
    expect_goes_on(spec, part_of(0, 1));
    expect_goes_on(spec, part_of(1, 3));
  }
  spec.shuffle_rows = 0;
  ReadOptions options = part_of(0, 1);
  options.rows_before = 30;
  auto reader = Reader::open(spec, options);
  Batch batch;
  while (*(*reader)->next(&batch)) {
  }
  EXPECT_EQ(batch.pass_rows, 34);
  EXPECT_EQ((*reader)->stats().rows_skipped, 1) << (*reader)->stats().first_skipped;
  EXPECT_EQ((*reader)->stats().rows_before, 30);
}

TEST(Reader, BeginsInTheMiddleOfTheSyntheticStream) {
  DataSpec spec;
  spec.format = Format::kSynthetic;
  spec.synthetic = {.rows = 31, .first_row = 5, .seed = 3, .vocabulary_max = 60};
  expect_goes_on(spec, part_of(0, 1, 4));
  expect_goes_on(spec, part_of(2, 3, 4));
}

TEST(Reader, GzipReadsAsPlain) {
  const TestFolder folder;
  std::string text;
  for (int i = 0; i < 3000; ++i) text += criteo_row(std::to_string(i % 2)) + "\n";
  DataSpec plain;
  plain.format = Format::kCriteo;
  plain.files = {folder.write("a.tsv", text)};
  DataSpec packed = plain;
  packed.files = {folder.write_gzip("a.tsv.gz", text)};
  EXPECT_EQ(*rows_of(plain), *rows_of(packed));
  EXPECT_EQ(rows_of(packed)->size(), 3000);
}

TEST(Reader, GivesFullBatchesAndAShortLastOne) {
  const TestFolder folder;
  const DataSpec spec = numbered_csv(folder, 1);
  auto reader = Reader::open(spec, part_of(0, 1, 25));
  std::vector<int64_t> sizes;
  Batch batch;
  while (*(*reader)->next(&batch)) {
    sizes.push_back(batch.rows);
    EXPECT_EQ(batch.label.shape().dim(0), batch.rows);
    EXPECT_EQ(batch.ids.shape(), (tensor::Shape{batch.rows, 1}));
  }
  EXPECT_THAT(sizes, testing::ElementsAre(25, 25, 7));
  EXPECT_EQ((*reader)->stats().rows_read, kRowsPerFile);
  EXPECT_EQ((*reader)->stats().progress, 1);
  EXPECT_GT((*reader)->stats().bytes_read, 0);

  ReadOptions full_only = part_of(0, 1, 25);
  full_only.drop_partial = true;
  EXPECT_EQ(rows_of(spec, full_only)->size(), 50);
}

TEST(Reader, ReusesABatchsMemoryUnlessSomebodyHoldsIt) {
  const TestFolder folder;
  auto reader = Reader::open(numbered_csv(folder, 1), part_of(0, 1, 10));
  Batch batch;
  ASSERT_TRUE(*(*reader)->next(&batch));
  const std::byte* first = batch.ids.raw();
  ASSERT_TRUE(*(*reader)->next(&batch));
  EXPECT_EQ(batch.ids.raw(), first);
  const tensor::Tensor held = batch.ids;
  ASSERT_TRUE(*(*reader)->next(&batch));
  EXPECT_NE(batch.ids.raw(), first);
  EXPECT_EQ(held.data<int64_t>()[0], 10);
}

TEST(Reader, PartsCoverEachRowOnceForAnyNumberOfFilesAndWorkers) {
  for (const int files : {1, 2, 3, 5}) {
    const TestFolder folder;
    const DataSpec spec = numbered_csv(folder, files);
    const auto whole = sorted(*rows_of(spec));
    ASSERT_EQ(whole.size(), files * kRowsPerFile);
    for (const int workers : {1, 2, 3, 4, 7, 100}) {
      std::vector<std::string> all;
      for (int w = 0; w < workers; ++w) {
        const auto rows = rows_of(spec, part_of(w, workers));
        ASSERT_TRUE(rows.ok());
        all.insert(all.end(), rows->begin(), rows->end());
      }
      EXPECT_EQ(sorted(all), whole) << files << " files, " << workers << " workers";
    }
  }
}

TEST(Reader, SplitsWholeFilesWhenThereAreEnoughElseRows) {
  const TestFolder folder;
  const DataSpec spec = numbered_csv(folder, 2);
  EXPECT_EQ((*rows_of(spec, part_of(1, 2)))[0], fmt::format("0||{}|", kRowsPerFile));
  EXPECT_EQ((*rows_of(spec, part_of(1, 3)))[0], "1||1|");
  EXPECT_EQ((*rows_of(spec, part_of(1, 3)))[1], "0||4|");
}

TEST(Reader, ShufflingGivesEveryRowOnceInAnOrderThatRepeats) {
  const TestFolder folder;
  for (DataSpec spec : {numbered_csv(folder, 2), numbered_libsvm(folder)}) {
    const auto ordered = *rows_of(spec);
    for (const int64_t buffer : {1, 5, 40, 1000}) {
      spec.shuffle_rows = buffer;
      spec.seed = 3;
      const auto rows = *rows_of(spec, part_of(0, 1));
      EXPECT_EQ(sorted(rows), sorted(ordered));
      EXPECT_EQ(rows, *rows_of(spec, part_of(0, 1, 7)));
      EXPECT_EQ(rows == ordered, buffer == 1);
    }
    const auto rows = *rows_of(spec);
    ReadOptions later;
    later.epoch = 1;
    EXPECT_NE(*rows_of(spec, later), rows);
    spec.seed = 4;
    EXPECT_NE(*rows_of(spec), rows);
  }
}

TEST(Reader, ShuffledArraysAndPartsCoverEachRowOnce) {
  const TestFolder folder;
  std::string ids;
  std::string labels;
  for (int64_t i = 0; i < 101; ++i) {
    ids.append(reinterpret_cast<const char*>(&i), sizeof(i));
    labels += static_cast<char>(i % 2);
  }
  DataSpec spec;
  spec.format = Format::kArrays;
  spec.arrays = {{"label", folder.write("l.npy", npy("'|u1'", "(101,)", labels))},
                 {"id", folder.write("i.npy", npy("'<i8'", "(101,)", ids))}};
  spec.categorical = {"id"};
  spec.id_space = 101;
  const auto ordered = *rows_of(spec);
  for (const int64_t shuffle : {0, 1}) {
    spec.shuffle_rows = shuffle;
    for (const int workers : {1, 3, 50}) {
      std::vector<std::string> all;
      for (int w = 0; w < workers; ++w) {
        const auto rows = *rows_of(spec, part_of(w, workers));
        all.insert(all.end(), rows.begin(), rows.end());
      }
      EXPECT_EQ(sorted(all), sorted(ordered));
      EXPECT_EQ(all == ordered, workers == 1 && shuffle == 0);
    }
  }
}

TEST(Reader, SkippedRowsAreCountedAndTheFirstOneNamed) {
  const TestFolder folder;
  DataSpec spec;
  spec.files = {folder.write("a.csv", "label,id\n1,1\n7,1\n0,2\nx\n1,3\n")};
  spec.id_space = 10;
  spec.bad_rows = BadRows::kSkip;
  auto reader = Reader::open(spec, {});
  Batch batch;
  ASSERT_TRUE(*(*reader)->next(&batch));
  EXPECT_THAT(rows_of(batch), testing::ElementsAre("1||1|", "0||2|", "1||3|"));
  EXPECT_EQ(batch.stats.rows_skipped, 2);
  EXPECT_EQ(batch.stats.rows_read, 3);
  EXPECT_THAT(batch.stats.first_skipped, HasSubstr("a.csv:3: the label '7'"));
}

TEST(Reader, SkippingDoesNotHideAFileInWhichNothingIsRight) {
  const TestFolder folder;
  DataSpec spec;
  spec.files = {folder.write("a.csv", "label,id\nx,1\ny,2\n")};
  spec.bad_rows = BadRows::kSkip;
  const auto rows = rows_of(spec);
  EXPECT_THAT(base::message_of(rows.status()), HasSubstr("not one of 2 rows could be read"));
}

TEST(Reader, BadRowsDoNotMoveTheRowsOfOtherParts) {
  const TestFolder folder;
  DataSpec spec;
  spec.files = {folder.write("a.csv", "label,id\n0,0\nbad,1\n0,2\n0,3\n0,4\n0,5\n")};
  spec.id_space = 10;
  spec.bad_rows = BadRows::kSkip;
  EXPECT_THAT(*rows_of(spec, part_of(0, 2)), testing::ElementsAre("0||0|", "0||2|", "0||4|"));
  EXPECT_THAT(*rows_of(spec, part_of(1, 2)), testing::ElementsAre("0||3|", "0||5|"));
}

TEST(Reader, RefusesOptionsThatMakeNoSense) {
  const TestFolder folder;
  const DataSpec spec = numbered_csv(folder, 1);
  EXPECT_FALSE(Reader::open(spec, part_of(2, 2)).ok());
  EXPECT_FALSE(Reader::open(spec, part_of(0, 0)).ok());
  EXPECT_FALSE(Reader::open(spec, part_of(0, 1, 0)).ok());
  DataSpec bad = spec;
  bad.shuffle_rows = -1;
  EXPECT_FALSE(Reader::open(bad, {}).ok());
  bad = spec;
  bad.files = {};
  EXPECT_FALSE(Reader::open(bad, {}).ok());
  bad.files = {folder.path("none.csv")};
  EXPECT_EQ(Reader::open(bad, {}).status().code(), StatusCode::kNotFound);
}

TEST(Reader, StopsWhenTold) {
  const TestFolder folder;
  const std::atomic<bool> stop{true};
  ReadOptions options;
  options.stop = &stop;
  EXPECT_EQ(rows_of(numbered_csv(folder, 1), options).status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace sidereal::data
