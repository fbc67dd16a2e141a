// Reading a JSON object of a client field by field, so that nothing in it is passed over: what was
// not read when all is done is refused by name (SV-09). null counts as absent, as at OpenAI.
#pragma once

#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace dflash::serve {

/// A request that is refused: an HTTP status and OpenAI's error object.
class ApiError : public Error {
 public:
  struct Kind {
    int status = 400;
    std::string type = "invalid_request_error", code = {}, param = {};  // param: the field's name
  };
  ApiError(Kind kind, const std::string& message) : Error(message), kind_(std::move(kind)) {}

  int status() const { return kind_.status; }
  /// {"error": {"message", "type", "param", "code"}}
  Json to_json() const;

 private:
  Kind kind_;
};

/// 400 that names a field: "top_p: expected a number in (0, 1], got 7".
[[noreturn]] void refuse_field(const std::string& field, const std::string& expected,
                               const OrderedJson& got);

class Fields {
 public:
  /// `object` must outlive this; `where` names it in messages ("stream_options"; empty: the body).
  /// Error: not an object.
  Fields(const OrderedJson& object, std::string where = {});

  /// The value, or null; counts as read.
  const OrderedJson* find(const char* name);
  std::optional<bool> boolean(const char* name);
  std::optional<std::string> text(const char* name);
  std::optional<int64_t> integer(const char* name, int64_t least,
                                 int64_t most = std::numeric_limits<int64_t>::max());
  std::optional<double> number(const char* name, double least, double most);
  /// Known fields that ask for nothing unless they say something else than one of `neutral`.
  void expect_neutral(const char* name, std::initializer_list<OrderedJson> neutral);
  /// Known fields that are for others than the model ("user").
  void ignore(std::initializer_list<const char*> names);

  /// Error: a field that nobody asked for.
  void expect_all_read() const;
  std::string path(std::string_view name) const;

 private:
  const OrderedJson& object_;
  std::string where_;
  std::vector<std::string_view> known_;
};

}  // namespace dflash::serve
