// serve as a program: R-SV-8 (a drafter that cannot be loaded ends the start) and the signals.
#include <gtest/gtest.h>
#include <httplib.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "support/paths.h"
#include "support/temp_folder.h"

namespace dflash {
namespace {

/// The program with `arguments`, its stdout in a pipe, its stderr in a file.
class Process {
 public:
  explicit Process(std::vector<std::string> arguments) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::close(ends[0]);
      ::close(ends[1]);
      if (std::freopen(err_.c_str(), "w", stderr) == nullptr) ::_exit(99);
      const std::string program = tree::program().string();
      std::vector<char*> argv = {const_cast<char*>(program.c_str())};
      for (std::string& argument : arguments) argv.push_back(argument.data());
      argv.push_back(nullptr);
      ::execv(program.c_str(), argv.data());
      ::_exit(98);
    }
    ::close(ends[1]);
    out_ = ::fdopen(ends[0], "r");
  }
  ~Process() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    wait();
    std::fclose(out_);
  }

  /// Empty when stdout ended.
  std::string line() {
    std::string text;
    for (int c; (c = std::fgetc(out_)) != EOF && c != '\n';) text += static_cast<char>(c);
    return text;
  }
  void signal(int number) { ::kill(pid_, number); }
  int wait() {
    if (pid_ <= 0) return code_;
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string errors() const { return testing::read_file(err_); }

 private:
  testing::TempFolder folder_;
  std::string err_ = (folder_ / "err").string();
  pid_t pid_ = 0;
  std::FILE* out_ = nullptr;
  int code_ = -1;
};

class Serve : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(target_)) GTEST_SKIP() << "no " << target_;
  }
  std::string target_ = testing::source_path("assets/SmolLM2-135M-Instruct.Q4_1.gguf").string();
};

TEST_F(Serve, ADrafterThatCannotBeLoadedEndsTheStart) {  // R-SV-8
  Process process({"serve", "--target", target_, "--port", "0", "--drafter", "/no/such/drafter"});
  EXPECT_EQ(process.line(), "");  // never announced
  EXPECT_EQ(process.wait(), 1);
  EXPECT_NE(process.errors().find("/no/such/drafter"), std::string::npos) << process.errors();
}

TEST_F(Serve, AnswersUntilASignalAndFinishesWhatItHas) {
  Process process({"serve", "--target", target_, "--port", "0", "--proposer", "lookup", "--name",
                   "small", "--quiet"});
  const std::string line = process.line();
  ASSERT_EQ(line.find("http://127.0.0.1:"), 0u) << line << process.errors();
  EXPECT_NE(line.find("small"), std::string::npos) << line;
  EXPECT_NE(line.find("prompt lookup"), std::string::npos) << line;
  httplib::Client client(line.substr(0, line.find(": ", 8)));
  client.set_read_timeout(3600);
  const Json body = {{"model", "small"},
                     {"messages", {{{"role", "user"}, {"content", "Count from one to five."}}}},
                     {"temperature", 0},
                     {"max_tokens", 40},
                     {"stream", true}};
  httplib::Request request;
  request.method = "POST";
  request.path = "/v1/chat/completions";
  request.body = body.dump();
  std::string text;
  request.content_receiver = [&](const char* data, size_t size, uint64_t, uint64_t) {
    if (text.empty()) process.signal(SIGTERM);  // while it answers
    text.append(data, size);
    return true;
  };
  ASSERT_TRUE(client.send(request));
  EXPECT_NE(text.find("\"finish_reason\":\""), std::string::npos) << text;
  EXPECT_NE(text.find("data: [DONE]"), std::string::npos) << text;
  EXPECT_EQ(process.wait(), 143);
}

}  // namespace
}  // namespace dflash
