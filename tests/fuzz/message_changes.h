#pragma once

#include <cstddef>
#include <functional>
#include <random>
#include <string>

namespace google::protobuf {
class Descriptor;
}

/// Changes for messages of protobuf that bytes alone seldom hit: of one field, with all lengths
/// around it right.
namespace sidereal::fuzz {

/// Changes bytes; the result has at most `max` of them.
using ChangeBytes = std::function<std::string(std::string bytes, size_t max)>;

/// `bytes` with one field of a message of type `type` changed, removed or added; changed as bytes
/// when they are no such message.
std::string change_message(const std::string& bytes, const google::protobuf::Descriptor& type,
                           size_t max, std::minstd_rand* random, const ChangeBytes& change);

}  // namespace sidereal::fuzz
