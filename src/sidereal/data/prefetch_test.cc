#include "sidereal/data/prefetch.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "sidereal/data/batch_ring.h"
#include "sidereal/data/reader_shelf.h"
#include "sidereal/data/testing/files.h"

namespace sidereal::data {
namespace {

using Clock = std::chrono::steady_clock;
using testing::HasSubstr;

// Far away: reaching it fails the test by its own time limit.
Clock::time_point far() { return Clock::now() + std::chrono::seconds(60); }

DataSpec numbered_csv(const TestFolder& folder, int rows, const std::string& tail = "") {
  DataSpec spec;
  std::string text = "label,id\n";
  for (int r = 0; r < rows; ++r) text += fmt::format("{},{}\n", r % 2, r);
  spec.files = {folder.write("a.csv", text + tail)};
  spec.id_space = 1'000'000;
  return spec;
}

/// The next so many batches: rows, and what is said of the last one.
std::vector<std::string> take(PrefetchingReader* reader, int batches, Batch* batch) {
  std::vector<std::string> out;
  for (int i = 0; i < batches; ++i) {
    if (!*reader->next(batch, far())) break;
    for (const std::string& row : rows_of(*batch)) out.push_back(row);
  }
  return out;
}

TEST(ReaderShelf, GivesAReaderToWhoeverGoesOnWhereItIs) {
  const TestFolder folder;
  DataSpec spec = numbered_csv(folder, 300);
  spec.shuffle_rows = 20;
  PrefetchOptions options;
  options.read.batch_size = 16;
  options.epochs = 3;
  ReaderShelf shelf;
  Batch batch;
  auto reader = PrefetchingReader::open(spec, options);
  ASSERT_TRUE(reader.ok()) << reader.status();
  // Into the second pass: 19 batches are one.
  take(reader->get(), 22, &batch);
  EXPECT_EQ(batch.pass, 1);
  EXPECT_EQ(batch.pass_rows, 48);
  PrefetchingReader* const parked = reader->get();
  shelf.put(*std::move(reader));
  PrefetchOptions rest = options;
  rest.started = {{.part = {0, 1}, .epoch = 1, .rows_before = 48}};
  rest.read.epoch = 2;
  rest.epochs = 1;
  for (int change = 0; change < 5; ++change) {
    PrefetchOptions other = rest;
    DataSpec elsewhere = spec;
    if (change == 0) other.started[0].rows_before = 47;
    if (change == 1) other.read.batch_size = 15;
    if (change == 2) other.epochs = 2;
    if (change == 3) other.read.part = {0, 2};
    if (change == 4) elsewhere.seed = 1;
    EXPECT_EQ(shelf.take(elsewhere, other), nullptr) << change;
  }
  auto resumed = shelf.take(spec, rest);
  ASSERT_EQ(resumed.get(), parked);
  EXPECT_EQ(shelf.take(spec, rest), nullptr);
  // As one that was opened there.
  auto opened = PrefetchingReader::open(spec, rest);
  ASSERT_TRUE(opened.ok()) << opened.status();
  Batch expected;
  EXPECT_EQ(take(resumed.get(), 1, &batch), take(opened->get(), 1, &expected));
  EXPECT_EQ(batch.pass, 0);
  EXPECT_EQ(batch.pass_rows, 64);
  // And once more.
  shelf.put(std::move(resumed));
  rest.started[0].rows_before = 64;
  resumed = shelf.take(spec, rest);
  ASSERT_EQ(resumed.get(), parked);
  const auto left = take(resumed.get(), 1000, &batch);
  EXPECT_EQ(left, take(opened->get(), 1000, &expected));
  EXPECT_EQ(left.size(), 300 - 64 + 300);
  EXPECT_EQ(batch.pass, 1);
  EXPECT_EQ(resumed->stats().progress, 1);
  EXPECT_EQ(resumed->stats().rows_skipped, 0);
}

TEST(ReaderShelf, AReaderThatGoesOnSaysHowFarItIsInTheDataAndNotInWhatWasLeft) {
  const TestFolder folder;
  DataSpec spec = numbered_csv(folder, 10'240);
  spec.shuffle_rows = 5000;
  PrefetchOptions options;
  options.read.batch_size = 512;
  options.epochs = 2;
  ReaderShelf shelf;
  Batch batch;
  auto reader = PrefetchingReader::open(spec, options);
  ASSERT_TRUE(reader.ok()) << reader.status();
  take(reader->get(), 10, &batch);
  constexpr double kNear = 0.06;  // It looks where it is in the file every 1024 rows.
  EXPECT_NEAR(batch.stats.progress, 0.25, kNear);
  shelf.put(*std::move(reader));
  options.started = {{.part = {0, 1}, .epoch = 0, .rows_before = 5120}};
  options.read.epoch = 1;
  options.epochs = 1;
  auto resumed = shelf.take(spec, options);
  ASSERT_NE(resumed, nullptr);
  auto opened = PrefetchingReader::open(spec, options);
  ASSERT_TRUE(opened.ok()) << opened.status();
  for (PrefetchingReader* one : {resumed.get(), opened->get()}) {
    take(one, 1, &batch);
    EXPECT_NEAR(batch.stats.progress, 0.275, kNear);
    take(one, 19, &batch);
    EXPECT_NEAR(batch.stats.progress, 0.75, kNear);
  }
}

TEST(ReaderShelf, KeepsNothingOnceItIsClosed) {
  const TestFolder folder;
  const DataSpec spec = numbered_csv(folder, 300);
  PrefetchOptions options;
  ReaderShelf shelf;
  shelf.put(*PrefetchingReader::open(spec, options));
  shelf.close();
  EXPECT_EQ(shelf.take(spec, options), nullptr);
  shelf.put(*PrefetchingReader::open(spec, options));
  EXPECT_EQ(shelf.take(spec, options), nullptr);
}

TEST(PrefetchingReader, ReadsPassesThatOthersBeganBeforeItsOwn) {
  const TestFolder folder;
  DataSpec spec = numbered_csv(folder, 300);
  spec.shuffle_rows = 20;
  PrefetchOptions options;
  options.read.batch_size = 16;
  options.read.part = {0, 2};
  options.read.epoch = 5;
  options.epochs = 1;
  options.started = {{.part = {2, 3}, .epoch = 3, .rows_before = 32},
                     {.part = {1, 3}, .epoch = 4, .rows_before = 100},
                     {.part = {2, 3}, .epoch = 4}};
  auto reader = PrefetchingReader::open(spec, options);
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<std::vector<std::string>> got(4);
  std::vector<int64_t> ends(4);
  Batch batch;
  while (*(*reader)->next(&batch, far())) {
    const auto pass = static_cast<size_t>(batch.pass);
    for (const std::string& row : rows_of(batch)) got[pass].push_back(row);
    ends[pass] = batch.pass_rows;
  }
  const auto rows = [&](Part part, int64_t epoch) {
    ReadOptions read;
    read.part = part;
    read.epoch = epoch;
    return *rows_of(spec, read);
  };
  std::vector<std::string> first = rows({2, 3}, 3);
  first.erase(first.begin(), first.begin() + 32);
  EXPECT_EQ(got[0], first);
  EXPECT_TRUE(got[1].empty());
  EXPECT_EQ(got[2], rows({2, 3}, 4));
  EXPECT_EQ(got[3], rows({0, 2}, 5));
  EXPECT_EQ(ends, (std::vector<int64_t>{100, 0, 100, 150}));
}

TEST(PrefetchingReader, GivesTheSameBatchesAsReadersOfEachPass) {
  const TestFolder folder;
  DataSpec spec = numbered_csv(folder, 1003);
  spec.shuffle_rows = 64;
  PrefetchOptions options;
  options.read.batch_size = 16;
  options.epochs = 3;
  options.batches_ahead = 2;
  auto reader = PrefetchingReader::open(spec, options);
  ASSERT_TRUE(reader.ok());
  std::vector<std::vector<std::string>> got(3);
  Batch batch;
  double progress = 0;
  while (true) {
    const auto more = (*reader)->next(&batch, far());
    ASSERT_TRUE(more.ok()) << more.status();
    if (!*more) break;
    EXPECT_GE(batch.stats.progress, progress);
    progress = batch.stats.progress;
    for (const std::string& row : rows_of(batch)) got[batch.epoch].push_back(row);
  }
  EXPECT_EQ((*reader)->stats().rows_read, 3 * 1003);
  EXPECT_EQ((*reader)->stats().progress, 1);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    ReadOptions read;
    read.epoch = epoch;
    EXPECT_EQ(got[epoch], *rows_of(spec, read));
  }
  EXPECT_FALSE(*(*reader)->next(&batch, far()));
}

TEST(PrefetchingReader, ErrorsComeOutAfterTheBatchesBeforeThem) {
  const TestFolder folder;
  const DataSpec spec = numbered_csv(folder, 100, "5,5\n");
  PrefetchOptions options;
  options.read.batch_size = 10;
  auto reader = PrefetchingReader::open(spec, options);
  Batch batch;
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(*(*reader)->next(&batch, far()));
  const auto bad = (*reader)->next(&batch, far());
  EXPECT_EQ(bad.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(bad.status().message()), HasSubstr("a.csv:102: the label '5'"));
}

TEST(PrefetchingReader, CountsRowsSkippedAfterTheLastBatch) {
  const TestFolder folder;
  DataSpec spec = numbered_csv(folder, 10, "5,5\n6,6\n");
  spec.bad_rows = BadRows::kSkip;
  PrefetchOptions options;
  options.read.batch_size = 10;
  options.epochs = 2;
  auto reader = PrefetchingReader::open(spec, options);
  Batch batch;
  while (*(*reader)->next(&batch, far())) {
  }
  EXPECT_EQ((*reader)->stats().rows_skipped, 4);
  EXPECT_THAT((*reader)->stats().first_skipped, HasSubstr("a.csv:12"));
}

TEST(PrefetchingReader, BuffersComeBackForReuse) {
  const TestFolder folder;
  PrefetchOptions options;
  options.read.batch_size = 10;
  options.batches_ahead = 2;
  auto reader = PrefetchingReader::open(numbered_csv(folder, 10'000), options);
  std::vector<const std::byte*> seen;
  Batch batch;
  while (*(*reader)->next(&batch, far())) {
    if (std::find(seen.begin(), seen.end(), batch.ids.raw()) == seen.end()) {
      seen.push_back(batch.ids.raw());
    }
  }
  EXPECT_LE(seen.size(), 6);
}

TEST(PrefetchingReader, StopEndsTheThreadWhileItWaitsForRoom) {
  const TestFolder folder;
  PrefetchOptions options;
  options.read.batch_size = 1;
  options.batches_ahead = 1;
  auto reader = PrefetchingReader::open(numbered_csv(folder, 1000), options);
  Batch batch;
  ASSERT_TRUE(*(*reader)->next(&batch, far()));
  (*reader)->stop();
  EXPECT_EQ((*reader)->next(&batch, far()).status().code(), StatusCode::kCancelled);
  reader->reset();
}

TEST(PrefetchingReader, TheDestructorEndsAReaderOfEndlessData) {
  DataSpec spec;
  spec.format = Format::kSynthetic;
  spec.synthetic.rows = int64_t{1} << 40;
  PrefetchOptions options;
  options.read.batch_size = 100;
  auto reader = PrefetchingReader::open(spec, options);
  ASSERT_TRUE(reader.ok());
  Batch batch;
  ASSERT_TRUE(*(*reader)->next(&batch, far()));
}

TEST(PrefetchingReader, RefusesWhatReaderRefuses) {
  const TestFolder folder;
  DataSpec spec;
  spec.files = {folder.path("none")};
  EXPECT_EQ(PrefetchingReader::open(spec, {}).status().code(), StatusCode::kNotFound);
  PrefetchOptions none_ahead;
  none_ahead.batches_ahead = 0;
  EXPECT_FALSE(PrefetchingReader::open(numbered_csv(folder, 1), none_ahead).ok());
}

TEST(BatchRing, IsBoundedAndKeepsOrder) {
  BatchRing ring(2);
  Batch batch;
  EXPECT_FALSE(ring.pop(&batch));
  for (int i = 1; i <= 3; ++i) {
    batch.rows = i;
    EXPECT_EQ(ring.push(&batch), i <= 2);
  }
  EXPECT_TRUE(ring.pop(&batch));
  EXPECT_EQ(batch.rows, 1);
  EXPECT_TRUE(ring.pop(&batch));
  EXPECT_EQ(batch.rows, 2);
  EXPECT_FALSE(ring.pop(&batch));
}

TEST(BatchRing, AWaitEndsAtItsDeadlineOrByAPush) {
  BatchRing ring(1);
  EXPECT_FALSE(ring.wait(Clock::now()));
  Batch batch;
  ring.push(&batch);
  EXPECT_TRUE(ring.wait(far()));
  EXPECT_FALSE(ring.wait(Clock::now() + std::chrono::milliseconds(2)));
}

TEST(BatchRing, CarriesManyBatchesBetweenTwoThreads) {
  BatchRing ring(3);
  BatchRing room(3);
  constexpr int kBatches = 20000;
  std::thread producer([&] {
    for (int i = 0; i < kBatches; ++i) {
      Batch batch;
      batch.rows = i;
      while (!ring.push(&batch)) room.wait(far());
    }
    ring.close();
  });
  int next = 0;
  while (true) {
    const bool closed = ring.closed();
    Batch batch;
    if (ring.pop(&batch)) {
      ASSERT_EQ(batch.rows, next++);
      room.wake();
    } else if (closed) {
      break;
    } else {
      ring.wait(far());
    }
  }
  EXPECT_EQ(next, kBatches);
  producer.join();
}

}  // namespace
}  // namespace sidereal::data
