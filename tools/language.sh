#!/bin/sh
# tools/language.sh [--list [PATH] | --lower]: counts words that an English-speaking engineer would not write, in
# README.md, docs/, include/, src/ and tests/, per folder and in total. In sources it reads comments, string literals
# and a few names. Exits 1 if the total exceeds tools/language_limit. --list prints each finding as file:line, --lower
# stores a lower limit. tools/language_allowed.txt lists exceptions.
set -eu
cd "$(dirname "$0")/.."
exec perl - "$@" <<'PERL'
use strict;
use warnings;

# For comments, string literals and pages.
my @prose = (
  # Place verbs and prepositions
  qr/\b(?:lies?|lying|lay)\b/i,
  qr/\b(?:stands?|stood|standing)\b(?! for\b|-?in\b| alone\b|ard)/i,
  qr/\b(?:behind|beside|in front of)\b/i,
  # Verbs of speech for programs and files
  qr/\b(?:tells?|telling|told|says?|saying|said)\b/i,
  qr/\b(?:gives|gave)\b/i,
  # Clauses in place of nouns; "where" for if and when
  qr/\bwhat (?:is|are|was|were|the|it|they|comes?|came|goes|stands|lies|remains)\b/i,
  qr/(?<!from )(?<!know )(?<!shows )(?<!that )\bwhere (?:it|they|there|that|no|not|only|both|two|several|none|neither|nothing|something|all|every|each|one|an?|ranks?|rows?) (?:\S+ ){0,3}(?:is|are|was|were|has|have|had|does|do|can|cannot|must|may|need|needs|want|wants|would|will|fits?|differs?)\b/i,
  # Idiom
  qr/(?<!leave )(?<!leaves )(?<!let )(?<!stand-)(?<!stands )(?<!stand )\balone\b/i,
  qr/(?<!there )\b(?:is|are|was|were) no (?!longer|more\b)/i,
  qr/\b(?:so|as) many\b(?!(?: \S+){0,3} as\b)/i,
  qr/(?<!one )\bof (?:its|their|his|our|your|one's) own\b/i,
  qr/\bas (?:it|they) (?:is|are|was|were|has|have|had)(?=\s*(?:[.,;:)]|$|and\b|in\b|with\b|but\b))/i,
  qr/\b(?:whoever|nobody|somebody)\b/i,
  qr/\b(?:anew|under way)\b/i,
  qr/\bcounted(?=[.,;)]|$)/i,
  qr/\b(?:(?:is|are|was|were) kept (?:of|for|from)|kept of)\b/i,
  qr/\bat once\b/i,
  qr/\bhangs? on\b/i,
  # Private terms
  qr/(?<!dot )(?<!inner )(?<!outer )(?<!cross )(?<!scalar )(?<!matrix )(?<!tensor )\bproducts?\b(?! of (?:the|two|all|its|sizes|dimensions)\b)/i,
  qr/(?<!a )\bfew rows\b/i,
  qr/\bown (?:engine|panels?|pairs)\b/i,
  qr/\b(?:pairs of bf16|bf16 pairs|(?:engine|products|blocks?) of pairs|in pairs|by pairs)\b/i,
  qr/\bstretch(?:es)?\b/i,
  qr/\b(?:hops?|departures?)\b/i,
  qr/\b(?:first|further|later|more|next|last|each|many|number of|expert|of) rounds?\b(?! of (?:the )?bench)/i,
  qr/\b(?:deals? out|dealt|dealing out)\b/i,
  qr/\brooms?\b/i,
  qr/\bslots?\b/i,
  qr/\b(?:step|rank)(?:'s)? blocks?\b/i,
  qr/\bgrains?\b/i,
  qr/(?<!page )(?<!segmentation )\bfaults?\b/i,
  qr/\b(?:pieces?|patch(?:es)?|boxes)\b/i,
);
# Words that are right where text, tokenizers and files are the subject.
my @prose_elsewhere = (
  qr/(?<!positional )(?<!position )(?<!rotary )(?<!text )(?<!character )\bencodings?\b/i,
  qr/\bthe stream\b/i,
  qr/\b(?:the|a|its|of|whole) bod(?:y|ies)\b/i,
  qr/\b(?:the|its|their|rank's|action|step's) scripts?\b|\bscripts? of (?:a step|ranks)\b/i,
  qr/\bnews\b/i,
);
# Names in code.
my $names = qr/(?<![A-Za-z])(?:[Tt]ell|[Tt]old|[Ss]ays?|[Ss]tands?_|[Ss]tood|[Bb]eside|[Bb]ehind|[Aa]new|[Nn]obody|[Ww]hoever|[Ss]omebody|[Ss]tretch(?:es)?|[Dd]epartures?|[Hh]ops?|[Dd]ealt|[Gg]rain|[Rr]oom|[Ff]aults?(?!Kind|Point))(?![a-z])|\b(?:Stretch|StepBlock|RankBlock|RankReport|Departures?)(?=[A-Z]\w*|\b)/;
my $text_folders = qr{^(?:src|tests)/(?:data|base|observe|interop|cli|fuzz|config/toml)|^docs/data\.md};

my ($list, $under, $lower) = (0, '', 0);
while (@ARGV) {
  my $option = shift @ARGV;
  if ($option eq '--list') { $list = 1; $under = shift @ARGV if @ARGV && $ARGV[0] !~ /^--/ }
  elsif ($option eq '--lower') { $lower = 1 }
  else { print STDERR "usage: tools/language.sh [--list [PATH] | --lower]\n"; exit 2 }
}

# PATH: LINE PATTERN  # REASON
my @allowed;
open(my $allow, '<', 'tools/language_allowed.txt') or die "tools/language_allowed.txt: $!";
while (<$allow>) {
  next if /^\s*(#|$)/;
  /^(\S+): (.+?)  # \S/ or die "tools/language_allowed.txt:$.: expected 'PATH: PATTERN  # REASON'\n";
  push @allowed, [qr/^$1$/, qr/$2/];
}
die "tools/language_allowed.txt: more than 50 entries\n" if @allowed > 50;

my $any_prose = join("|", @prose);
$any_prose = qr/$any_prose/;
my $any_both = join("|", @prose, @prose_elsewhere);
$any_both = qr/$any_both/;
# git finds the lines that may hold one of them.
my $hint = '\b(l(ie|ies|ay|ying)|stands?|stood|standing|behind|beside|in front|tells?|told|telling|sa(y|ys|ying|id)|gives|gave|' .
  'what (is|are|was|were|the|it|they|com|came|goes|stands|lies|remains)|where|alone|(is|are|was|were) no |(so|as) many|' .
  "of [a-z']+ own|own (engine|panel|pair)|as (it|they)|whoever|nobody|somebody|anew|under way|counted|kept (of|for|from)|at once|hangs?|" .
  'products?|few rows|pairs|stretch|hops?|departures?|rounds?|deal|dealt|rooms?|slots?|(step|rank)(.s)? blocks?|grains?|faults?|pieces?|' .
  'patch|boxes|encodings?|the stream|body|bodies|scripts?|news)|' .
  '(Tell|Told|Says?|Stands?|Stood|Beside|Behind|Anew|Nobody|Whoever|Somebody|Stretch|StepBlock|RankBlock|News|Departures?|Hops?|Dealt|' .
  'Grain|Room|Faults?|_(tell|told|says?|stands?|stood|beside|behind|anew|nobody|whoever|stretch|departures?|hops?|dealt|grain|room|faults?))';
my @paths = map { ":(glob)$_" } 'README.md', map { ("docs/**/*.$_", "include/**/*.$_", "src/**/*.$_", "tests/**/*.$_") } qw(md cpp h inl cu py sh txt);
$ENV{LC_ALL} = 'C';
open(my $git, '-|', qw(git grep --untracked -zniIE), $hint, '--', @paths) or die "git: $!";
my (%count, %permits);
my $total = 0;
while (<$git>) {
  chomp;
  my ($file, $number, $line) = split /\0/, $_, 3;
  next if $list && index($file, $under) != 0;
  my $rules = $file =~ $text_folders ? $any_prose : $any_both;
  my $permits = $permits{$file} //= [map { $_->[1] } grep { $file =~ $_->[0] } @allowed];
  my ($text, $code) = ('', '');
  if ($file =~ /\.md$/) {
    ($text = $line) =~ s/`[^`]*`|\]\([^)]*\)//g;
  } elsif ($file =~ /\.(?:py|sh|txt)$/) {
    next if $file =~ /\.txt$/ && $file !~ /CMakeLists/ || $line !~ /#(.*)/;
    $text = $1;
  } else {
    next if $line =~ /^\s*#include/;
    ($code = $line) =~ s{"((?:[^"\\]|\\.)*)"|(?<!:)//(.*)}{ $text .= ' | ' . ($1 // $2); '""' }ge;
  }
  for my $permit (@$permits) {
    $text =~ s/$permit//g;
    $code =~ s/$permit//g;
  }
  my @words = ($text =~ /$rules/g, $code =~ /$names/g);
  next unless @words;
  my ($folder) = $file =~ m{^((?:src|tests|include)/[^/]+|docs|README\.md)};
  $count{$folder} += @words;
  $total += @words;
  if ($list) {
    $line =~ s/^\s+//;
    print "$file:$number: [", join(', ', @words), "] $line\n";
  }
}
exit 0 if $list;

my %top;
for my $folder (sort keys %count) {
  printf "%6d  %s\n", $count{$folder}, $folder if $folder =~ m{/};
  $top{$folder =~ s{/.*}{}r} += $count{$folder};
}
printf "%6d  %s\n", $top{$_}, $_ for sort keys %top;
open(my $stored, '<', 'tools/language_limit') or die "tools/language_limit: $!";
my $limit = int(<$stored>);
print "$total in all; the limit is $limit\n";
if ($total > $limit) {
  print STDERR "tools/language.sh: $total words to replace, at most $limit allowed; tools/language.sh --list shows them\n";
  exit 1;
}
if ($lower) {
  open(my $out, '>', 'tools/language_limit') or die "tools/language_limit: $!";
  print $out "$total\n";
}
PERL
