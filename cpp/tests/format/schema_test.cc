#include "format/schema.h"

#include <doctest/doctest.h>
#include <parquet/schema.h>
#include <parquet/types.h>

#include <string>
#include <vector>

#include "bridge/arrow/parts.h"

namespace torchparquet {
namespace {

using parquet::ConvertedType;
using parquet::LogicalType;
using parquet::Repetition;
using parquet::Type;
using parquet::schema::GroupNode;
using parquet::schema::NodePtr;
using parquet::schema::NodeVector;
using parquet::schema::PrimitiveNode;

constexpr auto kRequired = Repetition::REQUIRED;
constexpr auto kOptional = Repetition::OPTIONAL;
constexpr auto kRepeated = Repetition::REPEATED;

NodePtr Int(const std::string& name, Repetition::type repetition) {
  return PrimitiveNode::Make(name, repetition, Type::INT32);
}

NodePtr Text(const std::string& name, Repetition::type repetition) {
  return PrimitiveNode::Make(name, repetition, LogicalType::String(), Type::BYTE_ARRAY);
}

NodePtr Group(const std::string& name, Repetition::type repetition,
              const NodeVector& fields) {
  return GroupNode::Make(name, repetition, fields);
}

NodePtr List(const std::string& name, Repetition::type repetition,
             const NodePtr& repeated) {
  return GroupNode::Make(name, repetition, {repeated}, LogicalType::List());
}

// Of three levels.
NodePtr ListOf(const std::string& name, Repetition::type repetition,
               const NodePtr& element) {
  return List(name, repetition, Group("list", kRepeated, {element}));
}

NodePtr MapOf(const std::string& name, Repetition::type repetition,
              const NodePtr& value) {
  return GroupNode::Make(name, repetition,
                         {Group("key_value", kRepeated, {Text("key", kRequired), value})},
                         LogicalType::Map());
}

std::vector<LeafColumn> Describe(const NodeVector& fields) {
  parquet::SchemaDescriptor schema;
  schema.Init(GroupNode::Make("schema", kRequired, fields));
  return DescribeSchema(bridge::LeavesOf(schema));
}

struct Expected {
  std::string path;
  std::string kind;
  std::vector<int16_t> element_levels;
  int16_t max_level;
  bool nullable;
};

void CheckLeaves(const NodeVector& fields, const std::vector<Expected>& expected) {
  const std::vector<LeafColumn> leaves = Describe(fields);
  REQUIRE(leaves.size() == expected.size());
  for (size_t i = 0; i < leaves.size(); ++i) {
    CAPTURE(expected[i].path);
    CHECK(leaves[i].path == expected[i].path);
    CHECK(leaves[i].kind == expected[i].kind);
    CHECK(leaves[i].element_levels == expected[i].element_levels);
    CHECK(leaves[i].max_level == expected[i].max_level);
    CHECK(leaves[i].nullable == expected[i].nullable);
    CHECK(leaves[i].num_offsets() ==
          std::ssize(expected[i].element_levels) +
              (expected[i].kind.find("string") != std::string::npos));
  }
}

TEST_CASE("values and structs") {
  CheckLeaves(
      {Int("a", kRequired), Text("b", kOptional),
       Group("s", kOptional,
             {Int("x", kRequired), Group("t", kRequired, {Text("y", kOptional)})})},
      {{"a", "int32", {}, 0, false},
       {"b", "string", {}, 1, true},
       {"s.x", "int32", {}, 1, true},
       {"s.t.y", "string", {}, 2, true}});
}

TEST_CASE("lists of three levels, whatever their groups are called, and nested ones") {
  CheckLeaves(
      {ListOf("a", kOptional, Int("element", kOptional)),
       ListOf("b", kRequired, Int("element", kRequired)),
       List("c", kOptional, Group("bag", kRepeated, {Int("item", kOptional)})),
       ListOf("d", kOptional, ListOf("element", kOptional, Text("element", kOptional))),
       ListOf("e", kRequired,
              ListOf("element", kRequired,
                     ListOf("element", kOptional, Int("element", kRequired))))},
      {{"a", "list<int32>", {2}, 3, true},
       {"b", "list<int32>", {1}, 1, false},
       {"c", "list<int32>", {2}, 3, true},
       {"d", "list<list<string>>", {2, 4}, 5, true},
       {"e", "list<list<list<int32>>>", {1, 2, 4}, 4, true}});
}

TEST_CASE("lists of structs, and structs of lists") {
  CheckLeaves(
      {ListOf("a", kOptional,
              Group("element", kOptional, {Int("x", kRequired), Text("y", kOptional)})),
       Group("s", kOptional,
             {ListOf("l", kOptional, Int("element", kOptional)), Int("z", kRequired)})},
      {{"a.x", "list<int32>", {2}, 3, true},
       {"a.y", "list<string>", {2}, 4, true},
       {"s.l", "list<int32>", {3}, 4, true},
       {"s.z", "int32", {}, 1, true}});
}

TEST_CASE("legacy lists, by the format's rules for backward compatibility") {
  CheckLeaves(
      {List("a", kOptional, Int("element", kRepeated)),
       List("b", kRequired, Int("array", kRepeated)),
       // A group of several fields is the element, and so is one with one of two names.
       List("c", kOptional,
            Group("element", kRepeated, {Text("x", kRequired), Int("y", kOptional)})),
       List("d", kOptional, Group("array", kRepeated, {Text("x", kRequired)})),
       List("e", kOptional, Group("e_tuple", kRepeated, {Text("x", kRequired)})),
       List("f", kOptional, Group("d_tuple", kRepeated, {Text("x", kRequired)})),
       // Without an annotation.
       Int("g", kRepeated), Group("h", kRepeated, {Int("x", kOptional)}),
       Group("i", kOptional, {Group("j", kRepeated, {Int("k", kRepeated)})})},
      {{"a", "list<int32>", {2}, 2, true},
       {"b", "list<int32>", {1}, 1, false},
       {"c.x", "list<string>", {2}, 2, true},
       {"c.y", "list<int32>", {2}, 3, true},
       {"d.x", "list<string>", {2}, 2, true},
       {"e.x", "list<string>", {2}, 2, true},
       {"f", "list<string>", {2}, 2, true},
       {"g", "list<int32>", {1}, 1, false},
       {"h.x", "list<int32>", {1}, 2, true},
       {"i.j.k", "list<list<int32>>", {2, 3}, 3, true}});
}

TEST_CASE("lists as old writers annotate them") {
  CheckLeaves(
      {GroupNode::Make("a", kOptional,
                       {Group("bag", kRepeated, {Int("array_element", kOptional)})},
                       ConvertedType::LIST),
       GroupNode::Make("b", kOptional,
                       {GroupNode::Make("map", kRepeated,
                                        {Text("key", kRequired), Int("value", kOptional)},
                                        ConvertedType::MAP_KEY_VALUE)},
                       ConvertedType::MAP)},
      {{"a", "list<int32>", {2}, 3, true},
       {"b.key", "list<string>", {2}, 2, true},
       {"b.value", "list<int32>", {2}, 3, true}});
}

TEST_CASE("maps, and what they are nested with") {
  CheckLeaves(
      {MapOf("m", kOptional, Int("value", kOptional)),
       MapOf("n", kRequired, ListOf("value", kOptional, Text("element", kOptional))),
       ListOf("l", kOptional, MapOf("element", kRequired, Int("value", kRequired))),
       MapOf("o", kOptional, MapOf("value", kOptional, Int("value", kRequired)))},
      {{"m.key", "list<string>", {2}, 2, true},
       {"m.value", "list<int32>", {2}, 3, true},
       {"n.key", "list<string>", {1}, 1, false},
       {"n.value", "list<list<string>>", {1, 3}, 4, true},
       {"l.key", "list<list<string>>", {2, 3}, 3, true},
       {"l.value", "list<list<int32>>", {2, 3}, 3, true},
       {"o.key", "list<string>", {2}, 2, true},
       {"o.value.key", "list<list<string>>", {2, 4}, 4, true},
       {"o.value.value", "list<list<int32>>", {2, 4}, 4, true}});
}

TEST_CASE("where two leaves would have one path, all is in it") {
  CheckLeaves(
      {Group("s", kOptional,
             {ListOf("a", kOptional, Int("element", kOptional)),
              ListOf("a", kOptional, Text("item", kOptional)), Int("b", kRequired)})},
      {{"s.a.list.element", "list<int32>", {3}, 4, true},
       {"s.a.list.item", "list<string>", {3}, 4, true},
       {"s.b", "int32", {}, 1, true}});
}

}  // namespace
}  // namespace torchparquet
