#include "sidereal/security/first_bytes.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace sidereal::security {
namespace {

FirstBytes judge(const std::string& text, bool tls) {
  return judge_first_bytes(std::as_bytes(std::span(text)), tls);
}

const std::string kHello("\x16\x03\x01\x02\x00\x01", 6);
const std::string kSettings("\0\0\0\x04\0\0\0\0\0", 9);
const std::string kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + kSettings;

TEST(FirstBytes, AHelloOfTlsIsGoodWhereTlsIsSpokenAndGarbageElsewhere) {
  EXPECT_EQ(judge(kHello, true), FirstBytes::kGood);
  EXPECT_EQ(judge(kHello, false), FirstBytes::kGarbage);
}

TEST(FirstBytes, ThePrefaceOfHttp2IsGoodWithoutTlsAndGarbageWithIt) {
  EXPECT_EQ(judge(kPreface, false), FirstBytes::kGood);
  EXPECT_EQ(judge(kPreface, true), FirstBytes::kGarbage);
}

TEST(FirstBytes, EveryBeginningOfWhatIsGoodIsTooFewToJudge) {
  for (size_t n = 0; n < kHello.size(); ++n) {
    EXPECT_EQ(judge(kHello.substr(0, n), true), FirstBytes::kTooFew) << n;
  }
  for (size_t n = 0; n < kPreface.size(); ++n) {
    EXPECT_EQ(judge(kPreface.substr(0, n), false), FirstBytes::kTooFew) << n;
  }
}

TEST(FirstBytes, FramesThatAServerMustRefuseAreGarbage) {
  const auto with = [](const std::string& frame) { return judge(kPreface + frame, false); };
  const std::string preface = kPreface.substr(0, 24);
  EXPECT_EQ(judge(preface + std::string(9, '\xff'), false), FirstBytes::kGarbage);
  EXPECT_EQ(judge(preface + "this is no frame", false), FirstBytes::kGarbage);
  EXPECT_EQ(judge(preface + std::string("\0\0\x08\x06\0\0\0\0\0", 9), false), FirstBytes::kGarbage);
  // A ping, room, headers; then a ping on a stream, and a frame that is too long.
  const std::string good("\0\0\x08\x06\0\0\0\0\0pingping\0\0\x04\x08\0\0\0\0\0room", 30);
  const std::string headers("\0\0\x03\x01\x04\0\0\0\x01\x82\x84\x86", 12);
  EXPECT_EQ(with(kSettings), FirstBytes::kGood);
  EXPECT_EQ(with(good + headers), FirstBytes::kGood);
  EXPECT_EQ(with(good + std::string("\0\0\x08\x06\0\0\0\0\x01", 9)), FirstBytes::kGarbage);
  EXPECT_EQ(with(good + std::string("\x7f\0\0\0\0\0\0\0\x01", 9)), FirstBytes::kGarbage);
}

TEST(FirstBytes, RequestsOfHttp1AreGarbageAtTheFirstLetterThatDiffers) {
  EXPECT_EQ(judge("G", true), FirstBytes::kGarbage);
  EXPECT_EQ(judge("GET / HTTP/1.1\r\n", false), FirstBytes::kGarbage);
  EXPECT_EQ(judge("PRI * HTTP/1", false), FirstBytes::kGarbage);
}

TEST(FirstBytes, RecordsThatAreNoClientHelloAreGarbage) {
  EXPECT_EQ(judge(std::string("\x16\x03\x01\x02\x00\x02", 6), true), FirstBytes::kGarbage);
  EXPECT_EQ(judge(std::string("\x16\x03\x01\xff\xff\x01", 6), true), FirstBytes::kGarbage);
  EXPECT_EQ(judge(std::string("\x16\x03\x01\x00\x00\x01", 6), true), FirstBytes::kGarbage);
  EXPECT_EQ(judge(std::string("\x17\x03\x03", 3), true), FirstBytes::kGarbage);
  EXPECT_EQ(judge(std::string("\x16\x02", 2), true), FirstBytes::kGarbage);
}

TEST(FirstBytes, TheLengthOfAHelloIsThatOfItsRecord) {
  const std::string hello = kHello + std::string(20, 'x');
  EXPECT_EQ(hello_bytes(std::as_bytes(std::span(hello))), 5u + 0x200);
  EXPECT_EQ(hello_bytes({}), 0u);
}

TEST(FirstBytes, MoreBytesNeverTurnGarbageIntoSomethingGood) {
  std::mt19937 random(17);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = (round % 2 == 0 ? kHello : kPreface) + std::string(8, 'x');
    bytes[random() % bytes.size()] = static_cast<char>(random());
    for (const bool tls : {false, true}) {
      bool garbage = false;
      for (size_t n = 0; n <= bytes.size(); ++n) {
        const FirstBytes verdict = judge(bytes.substr(0, n), tls);
        if (garbage) {
          ASSERT_EQ(verdict, FirstBytes::kGarbage);
        }
        garbage = verdict == FirstBytes::kGarbage;
      }
      ASSERT_NE(judge(bytes.substr(0, kFirstBytesMax), tls), FirstBytes::kTooFew);
    }
  }
}

}  // namespace
}  // namespace sidereal::security
