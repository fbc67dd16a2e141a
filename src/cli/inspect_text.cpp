// inspect text: how a text (or a user message in its chat template) becomes ids.
#include "base/error.h"
#include "base/progress.h"
#include "cli/inspect.h"
#include "cli/options.h"

namespace dflash::cli {
namespace {

std::string printable(const std::string& bytes) {
  std::string out;
  for (unsigned char byte : bytes) {
    if (byte == '\n') {
      out += "\\n";
    } else if (byte == '\t') {
      out += "\\t";
    } else if (byte < 32 || byte == 127) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += static_cast<char>(byte);
    }
  }
  return out;
}

}  // namespace

int inspect_text(int argc, char** argv) {
  VerbParser parser("inspect text", "Tokens and ids of a text.");
  TargetOptions target;
  std::string content;
  bool chat = false, json = false;
  auto& app = parser.app();
  target.add_path(app);
  app.add_option("text", content, "the text")->required();
  app.add_flag("--chat", chat, "wrap it as a user message, ready for generation");
  app.add_flag("--json", json, "as JSON on stdout");
  if (auto code = parser.parse(argc, argv)) return *code;

  const auto tokenizer = jobs::load_tokenizer(target.resolved_path());
  std::vector<int64_t> ids;
  if (chat) {
    const auto format = text::ChatTemplate::for_tokenizer(*tokenizer, target.chat_options());
    ids = text::encode_prompt(*tokenizer, format, {{{"user", content}}});
  } else {
    ids = tokenizer->encode(content);
  }
  Json tokens = Json::array();
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string bytes = tokenizer->token_bytes(ids[i]);
    const bool special = tokenizer->is_special(ids[i]);
    tokens.push_back({{"id", ids[i]}, {"text", bytes}, {"special", special}});
    if (!json)
      fmt::print("{:>5} {:>7}  '{}'{}\n", i, ids[i], printable(bytes), special ? "  special" : "");
  }
  if (json) print_json({{"ids", ids}, {"tokens", tokens}});
  if (!json)
    fmt::print("{}, {}\n", counted(static_cast<int64_t>(ids.size()), "tokens"),
               counted(static_cast<int64_t>(content.size()), "bytes"));
  return 0;
}

}  // namespace dflash::cli
