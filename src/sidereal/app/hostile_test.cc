#include <random>
#include <thread>

#include "sidereal/app/testing/figures.h"
#include "sidereal/app/testing/hostile.h"

// What unauthenticated peers and liars send to the port of a server, while somebody works with it.

namespace sidereal::app {
namespace {

using grpc::StatusCode;
using ::testing::HasSubstr;

TEST_F(Hostile, bytes_that_are_no_http2_are_closed_and_counted) {
  std::mt19937_64 random(17);
  const std::vector<std::string> garbage = {
      "GET / HTTP/1.1\r\nHost: x\r\n\r\n", std::string("\x16\x03\x01\x02\x00\x01\x00", 7),
      std::string(100, '\0'), std::string(kPreface.substr(0, 10)) + "nothing"};
  for (int i = 0; i < 50; ++i) {
    for (const std::string& bytes : garbage) RawPeer(cluster_->address()).send(bytes);
    RawPeer(cluster_->address()).send(random_bytes(&random, 1 + random() % 5000));
  }
  RawPeer last(cluster_->address());
  last.send(garbage[0]);
  EXPECT_TRUE(last.is_closed_within(5));
  EXPECT_TRUE(eventually([&] { return refused("garbage") >= 201; })) << refused("garbage");
}

TEST_F(Hostile, frames_that_lie_end_their_connections) {
  std::mt19937_64 random(18);
  const std::string hello = std::string(kPreface) + frame(0, 4, 0, 0, "");
  const std::vector<std::string> lies = {
      frame(0xffffff, 0, 0, 1, "x"),         // 16 MB of data for a stream that is not there.
      frame(0xffffff, 1, 4, 1, "\x82\x86"),  // Headers that are too long.
      frame(5, 4, 0, 0, "12345"),            // Settings of five bytes.
      frame(4, 8, 0, 0, std::string(4, 0)),  // A window that grows by nothing.
      frame(8, 6, 0, 3, "12345678"),         // A ping on a stream.
      frame(20, 1, 4, 1, std::string(20, '\xff')),
      frame(0, 9, 4, 1, ""),  // A continuation of nothing.
  };
  std::vector<std::unique_ptr<RawPeer>> peers;
  for (const std::string& lie : lies) {
    peers.push_back(std::make_unique<RawPeer>(cluster_->address()));
    peers.back()->send(hello + lie);
    // The frame that is announced and does not come is the peer's to keep open.
    if (lie.size() > 9 && static_cast<uint8_t>(lie[0]) == 0xff) continue;
    EXPECT_TRUE(peers.back()->is_closed_within(15)) << peers.size();
  }
  for (int i = 0; i < 200; ++i) {
    peers.push_back(std::make_unique<RawPeer>(cluster_->address()));
    peers.back()->send(hello + random_bytes(&random, 1 + random() % 3000));
    std::string frames = hello;
    for (int k = 0; k < 20; ++k) {
      const std::string payload = random_bytes(&random, random() % 64);
      frames += frame(static_cast<uint32_t>(payload.size()), static_cast<uint8_t>(random() % 12),
                      static_cast<uint8_t>(random()), static_cast<uint32_t>(random() % 8), payload);
    }
    peers.push_back(std::make_unique<RawPeer>(cluster_->address()));
    peers.back()->send(frames);
  }
  // Each that the server ends is counted; nearly all are.
  const auto ended = [&] {
    return std::ranges::count_if(peers, [](const auto& one) { return one->is_closed_within(0); });
  };
  EXPECT_TRUE(eventually([&] { return ended() >= 380; })) << ended();
  EXPECT_TRUE(eventually([&] { return refused("garbage") >= ended(); })) << refused("garbage");
}

TEST_F(Hostile, hundreds_of_silent_connections_do_not_keep_others_out) {
  std::vector<std::unique_ptr<RawPeer>> silent;
  for (int i = 0; i < 800; ++i) {
    silent.push_back(std::make_unique<RawPeer>(cluster_->address()));
    if (i % 2 == 0) silent.back()->send(kPreface.substr(0, static_cast<size_t>(i % 24)));
  }
  // A newcomer gets in.
  EXPECT_EQ(cluster_->status().pid(), before_.pid());
  EXPECT_TRUE(silent.back()->is_closed_within(10));
  EXPECT_TRUE(eventually([&] { return refused("idle") + refused("over_limit") >= 700; }));
  EXPECT_TRUE(eventually([&] {
    return task_figure(cluster_->status(), "open_files") < task_figure(before_, "open_files") + 50;
  }));
}

TEST_F(Hostile, floods_of_small_requests_leave_others_room) {
  constexpr double kSeconds = 3;
  std::atomic<int64_t> sent = 0;
  std::vector<std::thread> attackers;
  for (int kind = 0; kind < 4; ++kind) {
    attackers.emplace_back([&, kind] {
      const auto master = v1::Master::NewStub(cluster_->channel());
      const auto worker = v1::Worker::NewStub(cluster_->channel());
      const Stopwatch watch;
      std::mt19937_64 random(static_cast<uint64_t>(kind));
      v1::ProgramRequest piece;
      piece.mutable_piece()->set_bytes(1);
      while (watch.seconds() < kSeconds) {
        grpc::ClientContext context;
        ++sent;
        if (kind == 0) {
          v1::TaskStatus reply;
          EXPECT_EQ(worker->GetStatus(&context, {}, &reply).error_code(),
                    StatusCode::FAILED_PRECONDITION);
        } else if (kind == 1) {
          v1::StepRequest request;
          request.mutable_head()->set_session(random());
          EXPECT_EQ(say(master->RunStep(&context), std::vector{request}).error_code(),
                    StatusCode::ABORTED);
        } else if (kind == 2) {
          EXPECT_EQ(say(worker->RunProgram(&context), std::vector<v1::ProgramRequest>(1, piece))
                        .error_code(),
                    StatusCode::INVALID_ARGUMENT);
        } else {
          // Asked, and soon no longer of interest.
          context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(5));
          v1::RecvTensorsRequest request;
          request.set_step(random());
          for (int i = 0; i < 10; ++i) request.add_keys()->set_edge(i);
          const auto stream = worker->RecvTensors(&context, request);
          EXPECT_EQ(stream->Finish().error_code(), StatusCode::DEADLINE_EXCEEDED);
        }
      }
    });
  }
  for (std::thread& attacker : attackers) attacker.join();
  RecordProperty("requests", std::to_string(sent));
  EXPECT_GT(sent, 100);
  EXPECT_GE(refused("requests"), sent / 10);
}

TEST_F(Hostile, questions_without_end_are_bounded) {
  v1::RecvTensorsRequest request;
  request.set_step(1);
  EXPECT_TRUE(receive(request).ok());
  for (int64_t i = 0; i < (int64_t{1} << 20); ++i) request.add_keys()->set_edge(i);
  EXPECT_EQ(receive(request).error_code(), StatusCode::RESOURCE_EXHAUSTED);
  // Many receive requests at once, then.
  request.mutable_keys()->DeleteSubrange(16'000, request.keys_size() - 16'000);
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::TensorGroupPieces>>> streams;
  int refusals = 0;
  for (int i = 0; i < 30; ++i) {
    request.set_step(static_cast<uint64_t>(100 + i));
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    contexts.back()->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(4));
    streams.push_back(worker_->RecvTensors(contexts.back().get(), request));
  }
  for (const auto& stream : streams) {
    const grpc::Status status = stream->Finish();
    refusals += status.error_code() == StatusCode::RESOURCE_EXHAUSTED ? 1 : 0;
  }
  RecordProperty("refusals", std::to_string(refusals));
  request.clear_keys();
  request.add_keys()->set_edge(1);
  request.add_keys()->set_edge(1);
  EXPECT_EQ(receive(request).error_code(), StatusCode::INVALID_ARGUMENT);
  request.set_incarnation(1);
  EXPECT_EQ(receive(request).error_code(), StatusCode::ABORTED);
}

TEST_F(Hostile, closures_that_make_no_sense_are_refused) {
  const auto run = [this](const std::vector<v1::ClosureRequest>& requests) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    return say(master_->RunClosures(&context), requests).error_code();
  };
  v1::ClosureRequest head;
  EXPECT_EQ(run({head}), StatusCode::ABORTED) << "no session";
  head.set_session(make_session());
  EXPECT_EQ(run({head, head}), StatusCode::INVALID_ARGUMENT) << "a second head";
  v1::ClosureRequest more;
  more.add_closures()->set_plan(7);
  EXPECT_EQ(run({head, more}), StatusCode::INVALID_ARGUMENT) << "no plan";
  more.Clear();
  more.add_pieces()->set_bytes(4);
  EXPECT_EQ(run({head, more}), StatusCode::INVALID_ARGUMENT) << "a piece of no closure";
  more.Clear();
  more.add_plans()->set_plan(1);
  EXPECT_EQ(run({head, more, more}), StatusCode::INVALID_ARGUMENT) << "a second plan";
  more.mutable_plans(0)->add_feeds("x");
  more.add_closures()->set_plan(1);
  more.mutable_closures(0)->set_timeout_ms(-1);
  EXPECT_EQ(run({head, more}), StatusCode::INVALID_ARGUMENT) << "a timeout";
  more.mutable_closures(0)->clear_timeout_ms();
  more.add_closures()->set_plan(1);
  EXPECT_EQ(run({head, more}), StatusCode::INVALID_ARGUMENT) << "a second closure";
  more.mutable_closures(1)->set_closure(1);
  more.add_pieces()->set_index(1);
  EXPECT_EQ(run({head, more}), StatusCode::INVALID_ARGUMENT) << "a feed too many";
  // Closures whose feeds never come, more than are taken.
  more.clear_pieces();
  more.clear_closures();
  for (uint64_t i = 0; i < 20'000; ++i) {
    more.add_closures()->set_closure(i);
    more.mutable_closures(static_cast<int>(i))->set_plan(1);
  }
  EXPECT_EQ(run({head, more}), StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(Hostile, holds_on_a_task_say_who_they_are_first) {
  v1::AttachRequest head;
  head.mutable_head()->set_version(service::kSessionVersion);
  head.mutable_head()->set_task("/job:w/replica:0/task:0");
  head.mutable_head()->set_session(5);
  v1::AttachRequest program;
  program.set_program("no program");
  EXPECT_EQ(attach({program}).error_code(), StatusCode::INVALID_ARGUMENT);
  // A session of its own: its hold ends some time after the call.
  v1::AttachRequest other = head;
  other.mutable_head()->set_session(4);
  EXPECT_EQ(attach({other, other}).error_code(), StatusCode::INVALID_ARGUMENT);
  other = head;
  other.mutable_head()->set_version(-1);
  EXPECT_EQ(attach({other}).error_code(), StatusCode::FAILED_PRECONDITION);
  other = head;
  other.mutable_head()->set_task("/job:ps/replica:0/task:0");
  EXPECT_EQ(attach({other}).error_code(), StatusCode::FAILED_PRECONDITION);
  for (const std::string& master : {std::string("worker 0"), std::string("/job:w"),
                                    "/job:" + std::string(300, 'w') + "/replica:0/task:0"}) {
    other = head;
    other.mutable_head()->set_master(master);
    EXPECT_EQ(attach({other}).error_code(), StatusCode::INVALID_ARGUMENT) << master;
  }
  // A program that is none is answered, again and again, to who does not read the answers.
  grpc::ClientContext context;
  const auto stream = worker_->Attach(&context);
  ASSERT_TRUE(stream->Write(head));
  v1::AttachReply reply;
  ASSERT_TRUE(stream->Read(&reply)) << "the hold stands once it is answered";
  EXPECT_EQ(reply.failure().code(), 0);
  std::mt19937_64 random(19);
  program.set_program(random_bytes(&random, 100'000));
  std::thread writer([&] {
    for (int i = 0; i < 5000; ++i) {
      if (!stream->Write(program)) break;
    }
  });
  EXPECT_EQ(attach({head}).error_code(), StatusCode::ALREADY_EXISTS);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(stream->Read(&reply));
  EXPECT_NE(reply.failure().code(), 0);
  context.TryCancel();
  writer.join();
  static_cast<void>(stream->Finish());
}

TEST_F(Hostile, followers_that_make_no_sense_are_refused) {
  v1::FollowRequest head;
  head.mutable_head()->set_version(service::kSessionVersion);
  head.mutable_head()->set_task("/job:w/replica:0/task:0");
  v1::FollowRequest taken;
  taken.set_taken(std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(follow({taken}).error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(follow({head, head}).error_code(), StatusCode::INVALID_ARGUMENT);
  // Nobody takes more than was given; who closes its half ends the stream.
  grpc::ClientContext context;
  const auto closing = worker_->FollowChanges(&context);
  v1::FollowReply last;
  for (const auto& request : {head, taken, taken}) EXPECT_TRUE(closing->Write(request));
  closing->WritesDone();
  while (closing->Read(&last)) {
  }
  EXPECT_TRUE(closing->Finish().ok());
  EXPECT_EQ(last.failure().code(), StatusCode::CANCELLED);
  v1::FollowRequest other = head;
  other.mutable_head()->set_version(-1);
  EXPECT_EQ(follow({other}).error_code(), StatusCode::FAILED_PRECONDITION);
  other = head;
  other.mutable_head()->set_task("/job:ps/replica:0/task:0");
  EXPECT_EQ(follow({other}).error_code(), StatusCode::FAILED_PRECONDITION);
  other = head;
  other.mutable_head()->set_window_bytes(-1);
  EXPECT_EQ(follow({other}).error_code(), StatusCode::INVALID_ARGUMENT);
  // Where there is nothing to follow is said as an answer: it may be there later.
  const auto answer = [&](const v1::FollowRequest& request) {
    grpc::ClientContext asking;
    const auto stream = worker_->FollowChanges(&asking);
    v1::FollowReply reply;
    EXPECT_TRUE(stream->Write(request));
    EXPECT_TRUE(stream->Read(&reply));
    asking.TryCancel();
    static_cast<void>(stream->Finish());
    return reply.failure().code();
  };
  EXPECT_EQ(answer(head), 0);
  for (const int lane : {-1, 1000}) {
    other = head;
    other.mutable_head()->set_lane(lane);
    EXPECT_EQ(answer(other), StatusCode::INVALID_ARGUMENT);
  }
  for (const std::string group : {"*", "nobody"}) {
    other = head;
    other.mutable_head()->set_state_group(group);
    EXPECT_EQ(answer(other), StatusCode::NOT_FOUND);
  }
}

TEST_F(Hostile, moves_that_make_no_sense_are_refused) {
  v1::MoveRequest head;
  head.mutable_head()->set_version(service::kSessionVersion);
  head.mutable_head()->set_task("/job:w/replica:0/task:0");
  head.mutable_head()->set_state_group("g");
  v1::MoveSource* const source = head.mutable_head()->add_sources();
  source->set_task("/job:w/replica:0/task:1");
  source->set_address("127.0.0.1:1");
  source->add_names("v");
  const auto move = [&](const std::vector<v1::MoveRequest>& requests) {
    grpc::ClientContext context;
    const auto stream = worker_->MoveVariables(&context);
    for (const v1::MoveRequest& one : requests) stream->Write(one);
    v1::MoveReply reply;
    while (stream->Read(&reply)) {
    }
    const grpc::Status status = stream->Finish();
    return status.ok() ? reply.failure().code() : static_cast<int>(status.error_code());
  };
  v1::MoveRequest take;
  take.set_take_ms(1);
  v1::MoveRequest commit;
  commit.set_commit(true);
  EXPECT_EQ(move({take}), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(move({head, head}), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(move({head, commit}), StatusCode::FAILED_PRECONDITION);
  const auto with = [&](const std::function<void(v1::MoveHead*)>& change) {
    v1::MoveRequest other = head;
    change(other.mutable_head());
    return move({other});
  };
  EXPECT_EQ(with([](auto* h) { h->set_version(-1); }), StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(with([](auto* h) { h->set_task("t"); }), StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(with([](auto* h) { h->set_state_group(std::string(1000, 'g')); }),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(with([](auto* h) { h->clear_sources(); }), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(with([](auto* h) { h->mutable_sources(0)->clear_names(); }),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(with([](auto* h) {
              for (int i = 0; i < 70'000; ++i) h->mutable_sources(0)->add_names("w");
            }),
            StatusCode::INVALID_ARGUMENT);
  // Nobody is there to take them from.
  EXPECT_EQ(move({head}), StatusCode::UNAVAILABLE);
}

TEST_F(Hostile, parts_of_steps_that_make_no_sense_are_refused) {
  v1::ProgramRequest head;
  head.mutable_head()->set_session(1);
  EXPECT_EQ(run_program({head}).error_code(), StatusCode::ABORTED);
  v1::ProgramRequest piece;
  piece.mutable_piece()->set_bytes(uint64_t{1} << 40);
  EXPECT_EQ(run_program({piece}).error_code(), StatusCode::INVALID_ARGUMENT);
  grpc::ClientContext context;
  const auto keep_alive = worker_->Attach(&context);
  v1::AttachRequest attach_head;
  attach_head.mutable_head()->set_version(service::kSessionVersion);
  attach_head.mutable_head()->set_task("/job:w/replica:0/task:0");
  attach_head.mutable_head()->set_session(6);
  ASSERT_TRUE(keep_alive->Write(attach_head));
  v1::AttachReply reply;
  ASSERT_TRUE(keep_alive->Read(&reply));
  head.mutable_head()->set_session(6);
  for (const int32_t feeds : {0, -1, 1, std::numeric_limits<int32_t>::max()}) {
    head.mutable_head()->set_feeds(feeds);
    EXPECT_EQ(run_program({head}).error_code(), StatusCode::NOT_FOUND);
  }
  v1::ProgramRequest cancel;
  cancel.set_cancel(true);
  EXPECT_TRUE(eventually([&] { return task_figure(cluster_->status(), "sessions") == 2; }));
  keep_alive->WritesDone();
  EXPECT_TRUE(keep_alive->Finish().ok());
}

TEST_F(Hostile, pieces_that_lie_end_their_step) {
  const uint64_t session = make_session();
  v1::StepRequest head;
  head.mutable_head()->set_session(session);
  head.mutable_head()->add_feeds("x");
  head.mutable_head()->add_fetches("back");
  const auto with = [](int32_t index, int32_t dtype, const std::vector<int64_t>& dims,
                       uint64_t bytes, const std::string& data) {
    v1::StepRequest request;
    v1::TensorPiece* const piece = request.mutable_piece();
    piece->set_index(index);
    piece->set_dtype(dtype);
    piece->mutable_dims()->Assign(dims.begin(), dims.end());
    piece->set_bytes(bytes);
    piece->set_data(data);
    return request;
  };
  const auto f32 = static_cast<int32_t>(tensor::DType::kFloat32);
  const auto text = static_cast<int32_t>(tensor::DType::kString);
  const auto code = [&](const v1::StepRequest& piece) {
    return run_step({head, piece}).error_code();
  };
  EXPECT_EQ(run_step({with(0, f32, {1}, 4, "1234")}).error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(run_step({head, head}).error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code(with(1, f32, {1}, 4, "1234")), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code(with(-1, f32, {1}, 4, "1234")), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code(with(0, 255, {1}, 4, "1234")), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code(with(0, f32, {-1}, 4, "1234")), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code(with(0, f32, std::vector<int64_t>(1000, 1), 4, "1234")),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code(with(0, f32, {1}, 8, "1234")), StatusCode::DATA_LOSS);
  EXPECT_EQ(code(with(0, f32, {1}, 4, "12345")), StatusCode::DATA_LOSS);
  EXPECT_EQ(code(with(0, f32, {int64_t{1} << 38}, uint64_t{1} << 40, "")),
            StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(code(with(0, text, {1}, ~uint64_t{0}, "")), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(code(with(0, text, {int64_t{1} << 40}, 8, "12345678")), StatusCode::DATA_LOSS);
  // Announced by many, and never sent: room is what bounds it, and comes back.
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReaderWriter<v1::StepRequest, v1::StepReply>>> streams;
  for (int i = 0; i < 200; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    streams.push_back(master_->RunStep(contexts.back().get()));
    streams.back()->Write(head);
    streams.back()->Write(with(0, f32, {int64_t{1} << 28}, uint64_t{1} << 30, ""));
  }
  EXPECT_TRUE(
      eventually([&] { return task_figure(cluster_->status(), "arriving_bytes") >= (1 << 30); }));
  for (int i = 0; i < 100'000; ++i) {
    if (!streams[0]->Write(with(0, f32, {1}, 4, ""))) break;
  }
  for (auto& context : contexts) context->TryCancel();
  int refusals = 0;
  for (auto& stream : streams) {
    refusals += stream->Finish().error_code() == StatusCode::RESOURCE_EXHAUSTED ? 1 : 0;
  }
  RecordProperty("refusals", std::to_string(refusals));
  EXPECT_TRUE(eventually([&] { return task_figure(cluster_->status(), "arriving_bytes") == 0; }));
}

TEST_F(Hostile, steps_and_sessions_that_make_no_sense_are_refused) {
  const uint64_t session = make_session();
  const auto failure_of = [&](const v1::StepHead& head) {
    v1::StepRequest request;
    *request.mutable_head() = head;
    grpc::ClientContext context;
    const auto stream = master_->RunStep(&context);
    stream->Write(request);
    v1::StepReply reply;
    v1::Failure failure;
    while (stream->Read(&reply)) {
      if (reply.has_tail()) {
        failure = reply.tail().failure();
        stream->WritesDone();
      }
    }
    const grpc::Status status = stream->Finish();
    if (failure.code() == 0) failure.set_code(status.error_code());
    return static_cast<StatusCode>(failure.code());
  };
  v1::StepHead head;
  head.set_session(session);
  head.set_timeout_ms(-1);
  EXPECT_EQ(failure_of(head), StatusCode::INVALID_ARGUMENT);
  head.set_timeout_ms(std::numeric_limits<int64_t>::max());
  head.add_fetches("there is no such node");
  EXPECT_EQ(failure_of(head), StatusCode::NOT_FOUND);
  for (const std::string& name :
       {std::string("x:-1"), std::string("x:99999999999999999999"), std::string(":"), std::string(),
        std::string(100'000, 'x'), std::string("x\n\0y", 4), std::string("x:1")}) {
    head.set_fetches(0, name);
    EXPECT_THAT(failure_of(head),
                ::testing::AnyOf(StatusCode::NOT_FOUND, StatusCode::INVALID_ARGUMENT))
        << name.substr(0, 50);
  }
  head.clear_fetches();
  for (int i = 0; i < (1 << 20) + 1; ++i) head.add_feeds("x");
  EXPECT_EQ(failure_of(head), StatusCode::INVALID_ARGUMENT);

  v1::CreateSessionRequest request;
  const auto code = [&] {
    v1::CreateSessionReply reply;
    grpc::ClientContext context;
    return master_->CreateSession(&context, request, &reply).error_code();
  };
  EXPECT_EQ(code(), StatusCode::FAILED_PRECONDITION);
  request.set_version(service::kSessionVersion);
  request.set_graph("this is no graph");
  EXPECT_EQ(code(), StatusCode::INVALID_ARGUMENT);
  request.set_graph(ir::to_text(model_.graph()));
  request.mutable_config()->set_compute_dtype("float7");
  EXPECT_EQ(code(), StatusCode::INVALID_ARGUMENT);
  request.mutable_config()->set_compute_dtype("");
  request.mutable_config()->set_operation_timeout_ms(-5);
  EXPECT_EQ(code(), StatusCode::INVALID_ARGUMENT);
  request.mutable_config()->set_operation_timeout_ms(std::numeric_limits<int64_t>::max());
  request.mutable_config()->add_device_filters("/job:/task:x");
  EXPECT_EQ(code(), StatusCode::INVALID_ARGUMENT);
  request.mutable_config()->clear_device_filters();
  request.set_timeout_ms(std::numeric_limits<int64_t>::max());
  EXPECT_EQ(code(), StatusCode::OK);
  v1::SetLogLevelRequest level;
  level.set_level("loud");
  v1::SetLogLevelReply set;
  grpc::ClientContext context;
  EXPECT_EQ(worker_->SetLogLevel(&context, level, &set).error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_GE(refused("requests"), 5);
}

}  // namespace
}  // namespace sidereal::app
