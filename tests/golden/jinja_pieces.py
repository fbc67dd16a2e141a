"""Template pieces that make_jinja.py renders: one construct each. Those of one line are in
jinja/pieces.txt; here are those that span lines, and what must be refused."""

import pathlib

# What raises in jinja2 must be refused by the evaluator too.
PIECES = (pathlib.Path(__file__).parent / "jinja/pieces.txt").read_text().rstrip("\n").split("\n")

# Pieces that span lines.
LONG_PIECES = [
    "  {% if yes %}\n  lines\n  {% endif %}\nend\n",
    "x\n  {%+ if yes %}kept{% endif %}\n\nx\n",
    "{% if yes +%}\nkept newline\n{% endif %}\n\n\n",
    "a\r\nb\rc {% if yes %}\r\nd{% endif %}\r\n",
    "{% for i in range(2) %}\n    {{ i }}\n{% endfor %}\n",
    "{% for i in range(2) -%}\n    {{ i }}\n{%- endfor %}\n\n",
    "\t {# c #}\nx\n  {#- c -#}\n  y\n{# a\nb #}\nz",
    "  {% raw %}\n  {{ x }}\n  {% endraw %}\n  end",
    "{%- macro a() %}\n  x\n{% endmacro -%}\n\n{{ a() }}|\n",
    "{{ \"a\\\nb\" }}{{ 'x\ny' }}",
    "{{- '' -}}\u00a0\u2003 x \u3000{{- n }}",
    "a{{ n\n  +\n  1\n}}\n{{ [\n1,\n2,\n] }}",
    "{% set x = {\n 'a': 1,\n} %}{{ x }}",
    "{% if yes %}{% if no %}a{% else %}b{% endif %}{% endif %}\n   {{ n }}   \n",
    "{% generation %}a{{ n }}{% endgeneration %} é {% generation %}b{% set v = 1 %}"
    "{% endgeneration %}{{ v }}",
    "{% set x %}{% generation %}lost{% endgeneration %}{% endset %}{{ x }}",
]

# What jinja2 renders and we refuse by name.
REFUSED = [
    "{{ namespace }}",
    "{% block x %}{% endblock %}",
    "{% for i in [1] recursive %}{% endfor %}",
]
