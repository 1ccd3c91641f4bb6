#include "sidereal/base/sanitizer.h"
#include "sidereal/tensor/half.h"
#include "sidereal/tensor/strings.h"
#include "sidereal/transport/testing/fixture.h"

/// What sessions need beyond feeds and fetches of numbers: strings, cancellation, calls without a
/// deadline, bytes of their own, long errors, tensors of any size, rounded floats, checksums.
namespace sidereal::transport {
namespace {

using namespace testing;  // NOLINT: the fixture of this module.

std::vector<std::string> texts_of(const Tensor& t) {
  const auto views = t.data<const std::string_view>();
  return {views.begin(), views.end()};
}

TEST_F(TransportTest, StringsOfEveryLengthComeBack) {
  start_both();
  const std::vector<std::string> texts = {"",
                                          "a",
                                          std::string("with\0zero", 9),
                                          std::string(4096, 'x'),
                                          std::string(4097, 'y'),
                                          std::string(3'000'000, 'z')};
  const std::vector<Tensor> feeds = {Tensor::strings({2, 3}, texts), Tensor::scalar(1.5f),
                                     Tensor::strings({0}, std::vector<std::string>{}),
                                     Tensor::strings({}, std::vector<std::string>{"scalar"})};
  Sink sink;
  ASSERT_TRUE(call(kEcho, feeds, &sink).ok());
  ASSERT_TRUE(sink.wait());
  ASSERT_TRUE(sink.status.ok()) << sink.status;
  ASSERT_EQ(sink.fetches.size(), 4u);
  EXPECT_EQ(sink.fetches[0].shape(), (Shape{2, 3}));
  EXPECT_EQ(texts_of(sink.fetches[0]), texts);
  EXPECT_TRUE(same(sink.fetches[1], feeds[1]));
  EXPECT_EQ(sink.fetches[2].shape(), (Shape{0}));
  EXPECT_EQ(texts_of(sink.fetches[3]), std::vector<std::string>{"scalar"});
}

TEST_F(TransportTest, ManySmallStringsTravelInOneMessage) {
  start_both();
  std::vector<std::string> texts;
  for (int i = 0; i < 100'000; ++i) texts.push_back(std::string(static_cast<size_t>(i % 23), 'k'));
  Sink sink;
  ASSERT_TRUE(call(kEcho, {Tensor::strings({100'000}, texts)}, &sink).ok());
  ASSERT_TRUE(sink.wait());
  ASSERT_TRUE(sink.status.ok()) << sink.status;
  EXPECT_EQ(texts_of(sink.fetches[0]), texts);
}

TEST_F(TransportTest, LengthsOfStringsThatLieCostTheConnection) {
  start_server();
  const Tensor feed = Tensor::strings({2}, std::vector<std::string>{"abc", "defgh"});
  const std::string good = string_call_frame(feed);
  const size_t lengths = good.size() - 24;  // two lengths, then 8 bytes
  int64_t expected = 0;
  for (const uint64_t length : {uint64_t{4}, uint64_t{2}, ~uint64_t{0}, uint64_t{1} << 63}) {
    std::string bad = good;
    std::memcpy(bad.data() + lengths, &length, sizeof(length));
    auto stream = raw_connection();
    write_raw(*stream, hello_frame() + bad);
    EXPECT_NE(read_raw(*stream).find("string"), std::string::npos) << length;
    EXPECT_EQ(server_lane_->metrics().malformed.value(), ++expected);
  }
}

TEST_F(TransportTest, AStringTensorThatIsAnnouncedTakesNoMemoryBeforeItsBytesCome) {
  options_.frame_bytes_max = int64_t{1} << 40;
  options_.lane_receive_bytes_max = int64_t{1} << 40;
  start_both();
  wire::FrameHeader header;
  header.method = wire::Method::kCall;
  header.call_id = 1;
  header.program = kEcho;
  header.slot_count = 1;
  header.payload_bytes = uint64_t{1} << 39;
  const int64_t count = 1000;
  std::string meta(24, '\0');
  meta[4] = static_cast<char>(DType::kString);
  meta[5] = 1;
  std::memcpy(meta.data() + 8, &header.payload_bytes, 8);
  std::memcpy(meta.data() + 16, &count, 8);
  header.meta_bytes = static_cast<uint32_t>(meta.size());
  auto stream = raw_connection();
  write_raw(*stream, hello_frame() + frame(header, meta) + std::string(100'000, '\0'));
  // The machine may have no such memory, even on paper: then the call is refused. Nobody else
  // notices either way.
  Sink sink;
  ASSERT_TRUE(call_fine(&sink));
}

TEST_F(TransportTest, ACancelledCallIsToldToTheHandler) {
  start_both();
  std::promise<void> held, cancelled;
  on(server_lane_, [&] {
    server_.on_held = [&] { held.set_value(); };
    server_.on_cancelled = [&] { cancelled.set_value(); };
  });
  Sink sink, fine;
  const auto id = call({.program = kHold, .deadline_ns = kNoDeadline}, {pattern(10, 1)}, &sink);
  ASSERT_TRUE(id.ok());
  ASSERT_EQ(held.get_future().wait_for(kPatience), std::future_status::ready);
  on(client_lane_, [&] { EXPECT_TRUE(channel_->cancel(*id)); });
  EXPECT_EQ(sink.status.code(), StatusCode::kCancelled);
  ASSERT_EQ(cancelled.get_future().wait_for(kPatience), std::future_status::ready);
  on(server_lane_, [&] {
    EXPECT_EQ(server_.cancelled, std::vector<uint64_t>{*id});
    server_.release();  // an answer is sent in vain
  });
  ASSERT_TRUE(call_fine(&fine));
  EXPECT_EQ(client_lane_->metrics().replies_late.value(), 1);
}

TEST_F(TransportTest, ADeadlineThatPassesIsToldToTheHandler) {
  start_both();
  std::promise<void> cancelled;
  on(server_lane_, [&] { server_.on_cancelled = [&] { cancelled.set_value(); }; });
  Sink sink;
  ASSERT_TRUE(call(kNever, {}, &sink, 20 * sys::kMillisecond).ok());
  ASSERT_TRUE(sink.wait());
  EXPECT_EQ(sink.status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(cancelled.get_future().wait_for(kPatience), std::future_status::ready);
}

TEST_F(TransportTest, ACallWithoutADeadlineOutlivesTheUsualOneAndManyKeepalives) {
  options_.call_deadline_ms = 50;
  options_.keepalive_timeout_ms = 200;
  start_both();
  Sink patient, usual;
  ASSERT_TRUE(
      call({.program = kHold, .deadline_ns = kNoDeadline}, {pattern(10, 1)}, &patient).ok());
  ASSERT_TRUE(call({.program = kNever}, {}, &usual).ok());
  ASSERT_TRUE(usual.wait());
  EXPECT_EQ(usual.status.code(), StatusCode::kDeadlineExceeded);
  // Pings of more than two timeouts.
  while (client_lane_->metrics().frames_out.value() < 14) std::this_thread::yield();
  on(server_lane_, [&] { server_.release(); });
  ASSERT_TRUE(patient.wait());
  EXPECT_TRUE(patient.status.ok()) << patient.status;
}

TEST_F(TransportTest, KindSessionStepAndBytesOfTheCallerReachTheHandlerAndBytesComeBack) {
  start_both();
  Sink sink;
  const std::string keys = "keys of tensors: 1, 2, 3";
  ASSERT_TRUE(
      call({.program = kEcho, .step = 3, .session = 0x1122334455667788, .kind = 7, .extra = keys},
           {pattern(100'000, 1)}, &sink)
          .ok());
  ASSERT_TRUE(sink.wait());
  ASSERT_TRUE(sink.status.ok()) << sink.status;
  EXPECT_EQ(sink.extra, keys);
  EXPECT_TRUE(same(sink.fetches[0], pattern(100'000, 1)));
  on(server_lane_, [&] {
    EXPECT_EQ(server_.last_call.session, 0x1122334455667788u);
    EXPECT_EQ(server_.last_call.kind, 7);
    EXPECT_EQ(server_.last_call.step, 3u);
  });
  Sink plain;
  ASSERT_TRUE(call_fine(&plain));
  EXPECT_EQ(plain.extra, "");
}

TEST_F(TransportTest, ErrorsCarryLongTextsAndSayThatTheyAreDerived) {
  start_both();
  server_.error_text = std::string(60'000, 'e');
  server_.is_derived = true;
  Sink derived;
  ASSERT_TRUE(call(kFail, {}, &derived).ok());
  ASSERT_TRUE(derived.wait());
  EXPECT_EQ(derived.status, base::not_found("{}", server_.error_text));
  EXPECT_TRUE(derived.derived);
  on(server_lane_, [&] {
    server_.error_text.clear();
    for (int i = 0; i < 40'000; ++i) server_.error_text += "\u00e9";  // two bytes each
    server_.is_derived = false;
  });
  Sink cut;
  ASSERT_TRUE(call(kFail, {}, &cut).ok());
  ASSERT_TRUE(cut.wait());
  EXPECT_EQ(base::message_of(cut.status), server_.error_text.substr(0, 65'536));
  EXPECT_FALSE(cut.derived);
}

TEST_F(TransportTest, FloatsMayTravelRoundedTo16Bits) {
  start_both();
  std::vector<float> values = {0.0f, -0.0f, 1.0f, 1e-8f, 3.14159f, -65504.0f, 1e30f, INFINITY};
  for (int i = 0; i < 10'000; ++i) values.push_back(std::sin(static_cast<float>(i)) * 100.0f);
  const auto count = static_cast<int64_t>(values.size());
  const Tensor feed = Tensor::of(Shape{count}, values);
  for (const wire::Form form : {wire::Form::kBfloat16, wire::Form::kFloat16}) {
    on(server_lane_, [&] { server_.reply_forms = {form, form}; });
    // Only float32 has forms: others travel as they are.
    const std::array forms = {form, form};
    Sink sink;
    const int64_t before = client_lane_->metrics().bytes_out.value();
    ASSERT_TRUE(call({.program = kEcho, .forms = forms}, {feed, pattern(9, 1)}, &sink).ok());
    ASSERT_TRUE(sink.wait());
    ASSERT_TRUE(sink.status.ok()) << sink.status;
    EXPECT_LT(client_lane_->metrics().bytes_out.value() - before, 2 * count + 300);
    const auto got = sink.fetches[0].data<const float>();
    for (size_t i = 0; i < values.size(); ++i) {
      const float expected = form == wire::Form::kBfloat16
                                 ? static_cast<float>(tensor::BFloat16(values[i]))
                                 : static_cast<float>(tensor::Float16(values[i]));
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected)) << values[i];
    }
    EXPECT_TRUE(same(sink.fetches[1], pattern(9, 1)));
  }
}

TEST_F(TransportTest, ChecksumsAreCheckedWhereTheyAreSent) {
  options_.frame_checksums = 1;
  start_both();
  Sink sink;
  const std::vector<Tensor> feeds = {pattern(100'001, 1), Tensor(),
                                     Tensor::strings({2}, std::vector<std::string>{"abc", "de"}),
                                     Tensor::scalar(2.0f)};
  const std::array forms = {wire::Form::kWhole, wire::Form::kWhole, wire::Form::kWhole,
                            wire::Form::kBfloat16};
  ASSERT_TRUE(call({.program = kEcho, .forms = forms, .extra = "bytes"}, feeds, &sink).ok());
  ASSERT_TRUE(sink.wait());
  ASSERT_TRUE(sink.status.ok()) << sink.status;
  EXPECT_EQ(sink.extra, "bytes");
  EXPECT_TRUE(same(sink.fetches[0], feeds[0]));
  EXPECT_EQ(texts_of(sink.fetches[2])[1], "de");
}

TEST_F(TransportTest, AChangedByteIsFoundByTheChecksums) {
  start_server();
  const std::string good = summed_call_frame(pattern(64, 1));
  {
    auto stream = raw_connection();
    write_raw(*stream, hello_frame() + good + goodbye_frame());
    read_raw(*stream);
    EXPECT_EQ(server_lane_->metrics().malformed.value(), 0);
  }
  int64_t expected = 0;
  // The call's id, its step, the number of a slot, the payload: nothing else would notice.
  for (const size_t at : {size_t{16}, size_t{33}, size_t{64}, good.size() - 1}) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 4);
    auto stream = raw_connection();
    write_raw(*stream, hello_frame() + bad + goodbye_frame());
    EXPECT_NE(read_raw(*stream).find("checksum"), std::string::npos) << at;
    EXPECT_EQ(server_lane_->metrics().malformed.value(), ++expected);
  }
}

TEST_F(TransportTest, ATensorOfMoreThan2GigabytesArrivesWhole) {
  if (base::kIsSanitized) GTEST_SKIP() << "skipped: with a sanitizer it takes minutes";
  options_.frame_bytes_max = int64_t{1} << 40;
  start_both();
  const int64_t bytes = (int64_t{2'200} << 20) + 5;
  const Tensor feed = Tensor::zeros(DType::kUInt8, {bytes});
  feed.raw()[bytes - 1] = std::byte{7};
  Sink sink;
  std::promise<bool> seen;
  on(server_lane_, [&] {
    server_.on_held = [&] {
      const Tensor& got = server_.held[0].feeds[0];
      seen.set_value(got.shape() == (Shape{bytes}) && got.raw()[bytes - 1] == std::byte{7} &&
                     got.raw()[0] == std::byte{0});
      server_.held[0].feeds.clear();
      server_.release();
    };
  });
  ASSERT_TRUE(call(kHold, {feed}, &sink).ok());
  ASSERT_TRUE(sink.wait());
  EXPECT_TRUE(sink.status.ok()) << sink.status;
  EXPECT_TRUE(seen.get_future().get());
}

TEST_F(TransportTest, AMessageLargerThanTheLimitIsNotSent) {
  options_.frame_bytes_max = 1 << 20;
  start_both();
  Sink sink;
  const Status status = call(kEcho, {Tensor::zeros(DType::kUInt8, {2 << 20})}, &sink);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(contains(status, "frame_bytes_max is 1048576")) << status;
}

}  // namespace
}  // namespace sidereal::transport
