#include "sidereal/transport/clients.h"

#include <gtest/gtest.h>

namespace sidereal::transport {
namespace {

using tensor::DType;
using tensor::Tensor;

uint64_t answer(Clients* clients, Client* client, uint64_t call_id, int64_t bytes = 0) {
  KeptMessage& place = clients->next_answer(client, call_id);
  const Tensor value = Tensor::zeros(DType::kUInt8, {bytes});
  place.assign(std::span(&value, 1), {}, {}, "extra");
  const uint64_t number = place.header.step;
  clients->keep(client, place);
  return number;
}

std::vector<uint64_t> kept(Clients* clients, Client* client) {
  std::vector<uint64_t> out;
  clients->each_answer(client, [&](const KeptMessage& one) { out.push_back(one.header.call_id); });
  return out;
}

TEST(Clients, AnswersAreKeptInOrderUntilTheyAreConfirmed) {
  KeptMessages memory;
  Clients clients(&memory, 1 << 20);
  Client* const client = clients.add({1, 2});
  for (uint64_t i = 1; i <= 10; ++i) EXPECT_EQ(answer(&clients, client, 100 + i), i);
  EXPECT_TRUE(clients.confirm(client, 7).ok());
  EXPECT_EQ(kept(&clients, client), (std::vector<uint64_t>{108, 109, 110}));
  EXPECT_TRUE(clients.confirm(client, 3).ok());
  EXPECT_EQ(clients.confirm(client, 11).code(), StatusCode::kDataLoss);
  EXPECT_EQ(answer(&clients, client, 111), 11u);
  EXPECT_TRUE(clients.confirm(client, 11).ok());
  EXPECT_EQ(clients.bytes(), 0u);
}

TEST(Clients, AnIdNamesOneClientAndIsNotUsedAgain) {
  KeptMessages memory;
  Clients clients(&memory, 1 << 20);
  Client* const one = clients.add({1, 2});
  const ConnectionId id = one->peer.id;
  EXPECT_TRUE(Clients::is_client(id));
  EXPECT_FALSE(Clients::is_client(ConnectionId(uint64_t{1} << 32)));
  EXPECT_EQ(clients.find(id), one);
  EXPECT_EQ(clients.find({1, 2}), one);
  EXPECT_EQ(clients.find({2, 1}), nullptr);
  clients.remove(one);
  EXPECT_EQ(clients.find(id), nullptr);
  Client* const other = clients.add({3, 4});
  EXPECT_EQ(clients.find(id), nullptr);
  EXPECT_EQ(clients.find(other->peer.id), other);
  EXPECT_EQ(clients.count(), 1u);
}

TEST(Clients, WhoHasTheMostIsForgottenWhenThereIsNoRoom) {
  KeptMessages memory;
  Clients clients(&memory, 100'000);
  Client* const modest = clients.add({1, 1});
  Client* const greedy = clients.add({2, 2});
  answer(&clients, modest, 1, 1000);
  for (uint64_t i = 1; i <= 20; ++i) answer(&clients, greedy, i, 10'000);
  EXPECT_TRUE(greedy->is_forgotten);
  EXPECT_FALSE(modest->is_forgotten);
  EXPECT_TRUE(kept(&clients, greedy).empty());
  EXPECT_EQ(kept(&clients, modest).size(), 1u);
  EXPECT_LE(clients.bytes(), 2000u);
  // Its answers go on having numbers, which it may confirm.
  EXPECT_EQ(answer(&clients, greedy, 21, 10'000), 21u);
  EXPECT_TRUE(clients.confirm(greedy, 21).ok());
  EXPECT_LE(clients.bytes(), 2000u);
}

}  // namespace
}  // namespace sidereal::transport
