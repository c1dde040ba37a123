"""The Korean table of the fixed texts of pages: {English text: Korean text}. `words` says what the signs mean."""

from __future__ import annotations

# fmt: off
KOREAN = {
    # Everywhere.
    "Skip to the content": "본문으로 건너뛰기", "On this page": "이 페이지의 내용", "Pages": "페이지",
    "Text": "텍스트", "An empty text.": "빈 텍스트입니다.", "{n} to {n}": "{0} ~ {1}", "{n} and {n}": "{0} ~ {1}",
    "{n} of {n}": "{1} 중 {0}", "{n} to {n} of {n}": "{2} 중 {0} ~ {1}", "{n} points": "{0} 포인트",
    "{n} cases": "케이스 {0}개", "{n} case": "케이스 {0}개", "{n} rows": "{0}행", "{n} more": "{0}개 더",
    "{n} labels": "라벨 {0}개", "{n} answers": "답 {0}개", "{n} answer": "답 {0}개", "Interval": "구간",
    "Value": "값", "Note": "비고", "Shares": "비율", "Of": "기준", "Why": "이유", "Where": "위치", "What": "무엇",
    "Count": "개수", "For example": "예", "unknown": "알 수 없음", "none": "없음", "yes": "예", "no": "아니요",
    "{n} more characters are in the run folder.": "나머지 {0}자는 실행 폴더에 있습니다.",
    # The report.
    "Summary": "요약", "Charts": "차트", "Failed records": "실패한 레코드", "Records": "레코드", "Record": "레코드",
    "Faults of the input": "입력의 오류", "About this run": "이 실행에 대하여",
    "Left out of the numbers": "숫자에서 제외된 것", "The line is at {n}.": "선은 {0} 위치입니다.",
    "Evaluator": "평가기", "Served by": "응답한 모델", "Version": "버전", "Code": "코드", "Input": "입력",
    "Inputs": "입력", "Parameters": "매개변수", "Suite": "스위트",
    "No number below counts these. report.json has more examples.": (
        "아래의 어떤 숫자에도 들어가지 않습니다. 다른 예는 report.json에 있습니다."
    ),
    "The first {n} of those in report.json.": "report.json에 있는 것 중 처음 {0}개입니다.",
    "The first {n} of {n}; the table below has the others.": "{1}개 중 처음 {0}개입니다. 나머지는 아래 표에 있습니다.",
    "The first {n} of {n}; report.json has all.": "{1}개 중 처음 {0}개입니다. 전체는 report.json에 있습니다.",
    "Searching all records needs scripts; records.jsonl beside this file has them.": (
        "모든 레코드를 검색하려면 스크립트가 필요합니다. 이 파일 옆의 records.jsonl에 모두 있습니다."
    ),
    "Records are not listed here: this file was written with a run of very many, or where only the report is. "
    "The command evalq report RUN -o report.html writes it with them, where the run's folder is.": (
        "레코드가 너무 많거나 보고서만 있어서 여기에는 레코드 목록이 없습니다. 실행 폴더가 있는 곳에서 evalq "
        "report RUN -o report.html 명령을 쓰면 목록도 들어갑니다."
    ),
    "Of {n} records this page lists all {n} that failed or are undecided and a sample of {n} others": (
        "레코드 {0}개 가운데 실패했거나 정해지지 않은 {1}개 전부와 나머지에서 뽑은 {2}개를 보여 줍니다"
    ),
    "{n} are left out, and all are in records.jsonl": "{0}개는 생략했고, 전체는 records.jsonl에 있습니다",
    "The expected and actual values of {n} failed ones are in records.jsonl alone": (
        "실패한 {0}개의 기대값과 실제값은 records.jsonl에만 있습니다"
    ),
    "They are longer than {n} KiB: report.json has them.": "{0} KiB보다 길어서 report.json에 있습니다.",
    # Records and answers.
    "Id": "ID", "Status": "상태", "Reason": "이유", "All ({0})": "전체 ({0})",
    "Failed or undecided ({0})": "실패 또는 미정 ({0})", "{0} ({1} in the run)": "{0} (실행에 {1}개)",
    "{0} of {1} records": "레코드 {1}개 중 {0}개", "Table of records": "레코드 표", "Search": "검색", "Show": "보기",
    "Close": "닫기", "Question": "질문", "Answer": "답", "Answers": "답",
    "No usable answer: ": "쓸 수 있는 답 없음: ", "No usable answer:": "쓸 수 있는 답 없음:",
    "Tool calls": "도구 호출", "Check": "검사", "Expected": "기대값", "Actual": "실제값",
    "Expected and actual": "기대값과 실제값", "Expected and actual values": "기대값과 실제값", "Attempts": "시도",
    "Each attempt": "시도별 내용", "Seconds": "초", "Tokens": "토큰", "Cost": "비용", "answered": "답함",
    "cost {n}": "비용 {0}", "{n} tokens in the answer": "답의 토큰 {0}개", "{n} in the prompt": "프롬프트 {0}",
    "Of these tokens": "토큰 내역", "First token": "첫 토큰", "Turns": "턴", "Finish": "종료 이유", "Model": "모델",
    "Conversation": "대화", "{n} messages": "메시지 {0}개", "{n} message": "메시지 {0}개", "Error": "오류",
    "{n} tool calls": "도구 호출 {0}개", "{n} tool call": "도구 호출 {0}개", "Tool": "도구",
    "{n} in the answer": "답 {0}", "passed": "통과", "failed": "실패", "error": "오류", "dead": "프로세스 종료",
    "unscored": "점수 없음", "undecided": "미정", "inconclusive": "판단 불가", "As it was recorded": "기록된 그대로",
    "Its record": "해당 레코드", "Round": "회차", "Case": "케이스", "Repeat": "반복", "System": "시스템",
    "User": "사용자", "Assistant": "도우미",
    "The expected and actual values are in records.jsonl.": "기대값과 실제값은 records.jsonl에 있습니다.",
    "Its line of records.jsonl": "records.jsonl의 해당 줄",
    # Headlines.
    "{n} without a verdict": "판정 없음 {0}개", "{n} errors": "오류 {0}개", "{n} without a score": "점수 없음 {0}개",
    "{n} killed their process": "프로세스 종료 {0}개",
    "{n} of {n} outputs passed": "출력 {1}개 중 {0}개 통과",
    "{n} of {n} judged outputs passed": "판정된 출력 {1}개 중 {0}개 통과",
    "There are no outputs to judge": "판정할 출력이 없습니다",
    "{n} of {n} tests passed": "시험 {1}개 중 {0}개 통과",
    "{n} of {n} judged tests passed": "판정된 시험 {1}개 중 {0}개 통과",
    "There are no tests to judge": "판정할 시험이 없습니다",
    "{n} of {n} transcripts comply": "기록 {1}개 중 {0}개 준수",
    "{n} of {n} judged transcripts comply": "판정된 기록 {1}개 중 {0}개 준수",
    "There are no transcripts to judge": "판정할 기록이 없습니다",
    "{n} of {n} completion reports passed": "완료 보고 {1}개 중 {0}개 통과",
    "{n} of {n} judged completion reports passed": "판정된 완료 보고 {1}개 중 {0}개 통과",
    "There are no completion reports to judge": "판정할 완료 보고가 없습니다",
    "{n} of {n} records pass {x}": "레코드 {1}개 중 {0}개 통과 ({2})",
    "{n} of {n} judged records pass {x}": "판정된 레코드 {1}개 중 {0}개 통과 ({2})",
    "There are no records to judge": "판정할 레코드가 없습니다",
    "{n} without a verdict (errors)": "판정 없음 {0}개 (오류)",
    "{n} without a verdict (no readable output)": "판정 없음 {0}개 (읽을 수 있는 출력 없음)",
    "{n} without a verdict (without a score)": "판정 없음 {0}개 (점수 없음)",
    "{n} without a verdict (killed their process)": "판정 없음 {0}개 (프로세스 종료)",
    "{n} without a verdict ({x})": "판정 없음 {0}개 ({1})",
    "Rates leave out what has no verdict": "비율은 판정이 없는 것을 빼고 계산합니다",
    "{n} of {n} records have a result": "레코드 {1}개 중 {0}개에 결과가 있음",
    "A mean score of {n} of 5 over {n} rows": "{1}행의 평균 점수 {0} (5점 만점)",
    "{n} of them have no answer (0 points)": "그중 {0}행은 답이 없음 (0점)",
    "No score: none of {n} rows has a check that can be read": (
        "점수 없음: {0}행 중 읽을 수 있는 체크가 있는 행이 없습니다"
    ),
    "{n} rows of {n} files scored": "파일 {1}개의 {0}행 채점",
    "{n} of {n} events are cooperative": "이벤트 {1}개 중 {0}가 협력",
    "{n} logs of {n} events": "로그 {0}개, 이벤트 {1}개",
    "No event: the log has nothing to rate": "이벤트 없음: 로그에 평가할 것이 없습니다",
    # Numbers of the summary.
    "Pass rate": "통과율", "Score": "점수", "Failed": "실패", "No verdict": "판정 없음",
    "Cases answered": "답한 케이스", "Thresholds": "기준값", "reached": "도달", "not reached": "미도달",
    "cannot tell yet": "아직 알 수 없음", "advisory": "참고용", "none set": "없음",
    "{n} of {n} hold": "{1}개 중 {0}개 충족", "Collapse": "붕괴", "nowhere": "없음", "found": "있음",
    "not known": "알 수 없음", "{n} of {n} cases": "케이스 {1}개 중 {0}개", "each by itself": "각각 따로",
    "Kinds of answers": "답의 종류", "effective": "유효 개수", "mean over cases": "케이스 평균",
    "Median latency": "지연 시간 중앙값", "{n} to {n}, 95 % interval": "{0} ~ {1}, 95 % 구간",
    "By plain checks": "일반 검사 기준", "By people's labels": "사람의 라벨 기준", "Mean score": "평균 점수",
    "passes from {n}": "{0}점부터 통과", "Errors": "오류", "Broken": "손상됨", "Unsubstantiated": "근거 없음",
    "Pattern sets agree": "패턴 집합 일치", "of {n} labelled": "라벨 {0}개 기준", "Suspected": "의심",
    "Goals reached": "달성한 목표", "Not checked": "확인 안 됨", "Hallucinations found": "찾은 환각",
    "of the labelled ones": "라벨이 있는 것 기준", "No readable output": "읽을 수 있는 출력 없음",
    "Mode collapse": "모드 붕괴", "{x} ({n} cases)": "{0} (케이스 {1}개)", "Diversity": "다양성",
    "1 is even": "1이면 고름", "Intent": "의도 충족", "Accuracy": "정확성", "Consistency": "일관성",
    "Stability": "안정성", "Mean time": "평균 시간", "Without an answer": "답 없음", "of {n}": "{0}점 만점",
    "{n} queries": "쿼리 {0}개", "mean score": "평균 점수", "Cooperation rate": "협력률",
    "Average contribution": "평균 기여", "a drop": "드롭당", "Average recovery": "평균 회복", "turns": "턴",
    "Gini coefficient": "지니 계수", "0 is equal": "0이면 평등", "Dialogue entropy": "대화 엔트로피",
    "Lines skipped": "건너뛴 줄", "{n} bits": "{0} 비트",
    "{n} of {n} cases collapsed": "케이스 {1}개 중 {0}개 붕괴",
    "of the {n} of {n} outputs with a verdict": "출력 {1}개 중 판정이 있는 {0}개 기준",
    "of the {n} of {n} cases answered": "케이스 {1}개 중 답한 {0}개 기준",
    "of the {n} of {n} outputs with a verdict and the {n} of {n} cases answered": (
        "출력 {1}개 중 판정이 있는 {0}개, 케이스 {3}개 중 답한 {2}개 기준"
    ),
    "of the {n} of {n} tests with a readable output": "시험 {1}개 중 출력을 읽을 수 있는 {0}개 기준",
    "of the {n} of {n} tests with a readable output and the {n} of {n} cases answered": (
        "시험 {1}개 중 출력을 읽을 수 있는 {0}개, 케이스 {3}개 중 답한 {2}개 기준"
    ),
    "of the {n} of {n} records that have a result": "레코드 {1}개 중 결과가 있는 {0}개 기준",
    "{n} case without an output": "출력 없는 케이스 {0}개",
    "{n} cases without an output": "출력 없는 케이스 {0}개",
    "People's labels do not bear out the verdicts of {x} yet: what rests on these is advisory": (
        "{0}의 판정은 아직 사람의 라벨로 확인되지 않았으므로, 이 판정에 기댄 결과는 참고용입니다"
    ),
    "records with such a claim": "그런 주장이 있는 레코드",
    "say done, carry it not": "완료했다고 하나 근거가 없음",
    "broken or not looked up": "손상되었거나 조회하지 못함",
    "{n} outputs could not be read": "출력 {0}개를 읽지 못했습니다",
    "{x} ({n} of {n} cases collapsed)": "{0} (케이스 {2}개 중 {1}개 붕괴)",
    "errors, broken JSON, empty": "오류, 깨진 JSON, 빈 답",
    "{n} rows have no check that can be read, and stay out of every mean": (
        "{0}행은 읽을 수 있는 체크가 없어 모든 평균에서 제외했습니다"
    ),
    "{n} conditions in {n} rows are in no form that evalq reads": "{1}행의 조건 {0}개는 evalq가 읽는 형식이 아닙니다",
    "no row has a check that can be read from 기대결과, so no row has a score": (
        "기대결과에서 읽을 수 있는 체크가 있는 행이 없어 점수가 없습니다"
    ),
    "no row has JSON in Raw JSON, so every score is 0. Was the column cut, or changed by Excel?": (
        "Raw JSON에 JSON이 있는 행이 없어 모든 점수가 0입니다. 열이 잘렸거나 Excel이 바꿨나요?"
    ),
    "no row has a responseTimeSec in Raw JSON, so speed has no value": (
        "Raw JSON에 responseTimeSec이 있는 행이 없어 속도 값이 없습니다"
    ),
    "no row has an LLM 점수, so accuracy is that of the checklists alone": (
        "LLM 점수가 있는 행이 없어 정확성은 체크리스트만으로 구했습니다"
    ),
    # Charts.
    "Pass rate by case": "케이스별 통과율", "The lowest come first": "낮은 것이 먼저 나옵니다",
    "Pass rate by tag": "태그별 통과율", "Tag": "태그", "Pass rate by check": "검사별 통과율",
    "{n} effective kinds": "유효 종류 {0}개", "collapsed above {n}": "{0}보다 크면 붕괴", "collapsed": "붕괴",
    "diverse": "다양함", "Agreement with people": "사람과의 일치", "Pass rate by labels": "라벨 기준 통과율",
    "{n} by its verdicts": "판정으로는 {0}", "Pass rate by agent": "에이전트별 통과율", "Agent": "에이전트",
    "no output": "출력 없음", "Diversity by case": "케이스별 다양성", "{n} effective modes": "유효 모드 {0}개",
    "Commonest issues": "가장 흔한 문제", "Issue": "문제", "Components": "구성 요소", "Component": "구성 요소",
    "Bands": "구간별", "Band": "구간", "Agreement with labels": "라벨과의 일치", "Pattern set": "패턴 집합",
    "Questions answered yes": "예로 답한 질문", "Danger signals": "위험 신호", "Signal": "신호",
    "Effectiveness": "유효성", "Measure": "척도", "target {n}": "목표 {0}", "Score by round": "회차별 점수",
    "Mean over scored rows.": "채점한 행의 평균입니다.", "How scores are spread": "점수 분포",
    "Rows by score.": "점수별 행의 수입니다.", "Speed": "속도", "Failed checks by kind": "체크 종류별 실패",
    "Category": "카테고리", "Rows without an answer": "답이 없는 행",
    "Outputs that passed, with exact 95 % intervals": "통과한 출력의 비율과 정확한 95 % 구간입니다",
    "Mean over the cases of a tag, with 95 % intervals, cases being clusters of their answers": (
        "태그의 케이스 평균과 95 % 구간입니다. 케이스는 그 답들의 묶음입니다"
    ),
    "Outputs that passed a check, mean over its cases, with 95 % intervals, cases being clusters of their "
    "answers": (
        "검사를 통과한 출력의 케이스 평균과 95 % 구간입니다. 케이스는 그 답들의 묶음입니다"
    ),
    "Share of the commonest kind of answer": "가장 흔한 답의 비율",
    "How often a case was answered by its commonest kind of answer, with 95 % intervals. A case is collapsed "
    "whose interval lies above its limit, diverse below it; across it, more answers are needed.": (
        "케이스에서 가장 흔한 종류의 답이 나온 비율과 95 % 구간입니다. 구간이 한계보다 위면 붕괴, 아래면 "
        "다양함이고, 걸치면 답이 더 필요합니다."
    ),
    "Labelled verdicts that people agree with, with 95 % intervals": (
        "라벨이 있는 판정 가운데 사람이 동의한 비율과 95 % 구간입니다"
    ),
    "Pass rates as people would have them, by labels of a random sample and the judge's verdicts on all "
    "answers, with 95 % intervals.": (
        "무작위 표본의 라벨과 모든 답에 대한 판정으로 구한, 사람이 매겼을 통과율과 95 % 구간입니다."
    ),
    "The chance that one of k answers, at least, passes, mean over cases with so many answers, with 95 % "
    "intervals.": (
        "답 k개 가운데 하나라도 통과할 확률입니다. 답이 그만큼 있는 케이스의 평균과 95 % 구간입니다."
    ),
    "The chance that all of k answers pass, mean over cases with so many answers, with 95 % intervals.": (
        "답 k개가 모두 통과할 확률입니다. 답이 그만큼 있는 케이스의 평균과 95 % 구간입니다."
    ),
    "Tests that passed, of those with a readable output, with 95 % intervals (Wilson)": (
        "출력을 읽을 수 있는 시험 중 통과한 비율과 95 % 구간(Wilson)입니다"
    ),
    "The same for each case of the golden set": "골든 세트의 각 케이스에 대한 같은 값입니다",
    "{n} without a readable output": "읽을 수 있는 출력 없음 {0}개",
    "Share of the commonest option": "가장 흔한 선택지의 비율",
    "How often a case was answered by its commonest option, with 95 % intervals. A case whose interval lies "
    "above the line is collapsed, one below it diverse; across it, more runs are needed.": (
        "케이스에서 가장 흔한 선택지가 나온 비율과 95 % 구간입니다. 구간이 선보다 위면 붕괴, 아래면 "
        "다양함이고, 걸치면 실행이 더 필요합니다."
    ),
    "Evenness of the options chosen over repeated runs: 1 is all equally often, 0 only one.": (
        "반복 실행에서 고른 선택지의 고른 정도입니다. 1이면 모두 같은 횟수, 0이면 하나뿐입니다."
    ),
    "Tests in which each was found.": "각 문제가 나온 시험의 수입니다.",
    "Mean over records: what each part of the score comes to.": "레코드 평균: 점수의 각 부분입니다.",
    "How many records score in each.": "각 구간에 든 레코드의 수입니다.",
    "Share of the labelled records whose verdict is their label, by pattern set, with 95 % intervals (Wilson).": (
        "판정이 라벨과 같은 레코드의 비율을 패턴 집합별로 보이며, 95 % 구간(Wilson)이 함께 있습니다."
    ),
    "Share of the reports, with 95 % intervals (Wilson).": "보고의 비율과 95 % 구간(Wilson)입니다.",
    "Reports in which each was found.": "각 신호가 나온 보고의 수입니다.",
    "Reports that say all is done while what they hand in does not carry it.": (
        "모두 끝났다고 하지만 제출한 것이 이를 뒷받침하지 않는 보고의 수입니다."
    ),
    "Agreement with labels, with 95 % intervals; a target is met where all of an interval is on its side.": (
        "라벨과의 일치와 95 % 구간입니다. 구간 전체가 목표 쪽에 있으면 목표를 달성한 것입니다."
    ),
    "Rows by points for their time: 5 is fastest.": "시간 점수별 행의 수입니다. 5점이 가장 빠릅니다.",
    "Share of the checks of each kind that did not pass, with 95 % intervals (Wilson).": (
        "종류별로 통과하지 못한 체크의 비율과 95 % 구간(Wilson)입니다."
    ),
    "Failed checks by category": "카테고리별 실패한 체크",
    "Share of the checks in rows of each category that did not pass, with 95 % intervals (Wilson).": (
        "카테고리별 행에서 통과하지 못한 체크의 비율과 95 % 구간(Wilson)입니다."
    ),
    "By reason; numbers and ids in error texts are masked.": "이유별 수입니다. 오류 텍스트의 숫자와 ID는 가렸습니다.",
    # The viewer.
    "Runs": "실행", "Suites": "스위트", "Run": "실행", "Result": "결과", "State": "상태",
    "Evaluator, suite": "평가기, 스위트", "Cost, time": "비용, 시간", "Begun": "시작", "Other": "비교", "All": "전체",
    "All runs": "모든 실행", "Compare": "비교하기", "{n} runs": "실행 {0}개", "{n} run": "실행 {0}개",
    "{n} of {n} runs": "실행 {1}개 중 {0}개", "the latest first": "최신순", "{x} as base": "{0} (기준으로)",
    "{x} to compare with it": "{0} (비교 대상으로)", "No run matches.": "맞는 실행이 없습니다.",
    "← Earlier in this list": "← 목록의 앞쪽", "Further down →": "목록의 뒤쪽 →", "← Before": "← 이전",
    "Further →": "다음 →", "Look further →": "더 찾기 →", "done": "완료", "open": "진행 중", "calling": "호출 중",
    "called": "호출 끝남", "detached": "분리됨", "interrupted": "중단됨", "paused": "일시 중지", "stopped": "멈춤",
    "spent": "예산 소진", "retrying": "재시도 중", "following": "따라가는 중", "cancelled": "취소됨",
    "gone": "없어짐", "unreadable": "읽을 수 없음", "Where it is": "위치", "Folder": "폴더", "Target": "대상",
    "To pass on": "전달할 파일", "Not its own": "다른 실행의 출력", "Its suite's history": "스위트의 이력",
    "All records": "모든 레코드", "All that failed": "실패한 모든 레코드", "Failed or undecided": "실패 또는 미정",
    "From line": "시작 줄", "Lines {n} to {n}": "{0} ~ {1}번째 줄", "There is no line {n}": "{0}번째 줄이 없습니다",
    "its records": "레코드", "all answers to this case": "이 케이스의 모든 답", "all cases": "모든 케이스",
    "Repeat {n}": "반복 {0}", "{n} passed": "통과 {0}개", "{n} failed": "실패 {0}개", "{n} error": "오류 {0}개",
    "resume it with: {x}": "이어서 하려면: {0}", "see it with: {x}": "보려면: {0}",
    "it has its report": "보고서가 있습니다", "Progress": "진행", "Run state": "실행 상태",
    "How far it is": "진행 정도", "← From the beginning": "← 처음부터",
    "{n}, 95 % {n} to {n}": "{0}, 95 % 구간 {1} ~ {2}", "Runs here": "여기 있는 실행",
    "Runs of this suite": "이 스위트의 실행", "When": "때", "Over time": "시간에 따른 변화", "Drift": "드리프트",
    "Older runs →": "더 오래된 실행 →", "Baselines: {x}": "기준선: {0}", "Against {x}": "{0} 대비",
    "cannot be compared": "비교할 수 없음", "it is this run": "이 실행 자신", "Label": "라벨", "Option": "선택지",
    "No such case": "그런 케이스가 없습니다", "No such page": "그런 페이지가 없습니다",
    "No such run": "그런 실행이 없습니다", "No such record": "그런 레코드가 없습니다",
    "No records here": "레코드가 없습니다", "That cannot be compared": "비교할 수 없습니다",
    "That cannot be shown": "보여 줄 수 없습니다", "Invalid address": "잘못된 주소", "Chunks": "청크",
    "In work": "작업 중", "Dead records": "프로세스를 끝낸 레코드", "Trouble": "문제", "Calls": "호출",
    "In flight": "진행 중인 호출", "About the outputs": "출력에 대한 호출", "Answers recorded": "기록된 답",
    "{x} so far": "지금까지 {0}",
    "Compare the two that are picked": "고른 두 실행 비교하기",
    "There is no run in ./evalq-runs yet. Make some with evalq demo, or show other folders with evalq view "
    "FOLDER.": (
        "./evalq-runs에 아직 실행이 없습니다. evalq demo로 만들거나, evalq view FOLDER로 다른 폴더를 여세요."
    ),
    "no process drives it": "실행 중인 프로세스가 없습니다",
    "elsewhere; these facts are from the ledger": "다른 곳에 있습니다. 이 정보는 장부에서 왔습니다",
    "All in one table, to be sorted": "정렬할 수 있는 표 하나로 보기",
    "No record matches in the lines searched.": "찾은 줄에 맞는 레코드가 없습니다.",
    "Only the report of this run is here; its records are where its command computed it.": (
        "이 실행은 보고서만 있습니다. 레코드는 명령이 계산한 곳에 있습니다."
    ),
    "The answer is not here: its file has changed, or is not in the run folder.": (
        "답이 없습니다. 파일이 바뀌었거나 실행 폴더에 없습니다."
    ),
    "The question is not in the run folder: evalq keeps it if the case or the output has an input, unless "
    "--no-prompts leaves it out.": (
        "질문이 실행 폴더에 없습니다. 케이스나 출력에 입력이 있으면 남기며, --no-prompts를 쓰면 남기지 "
        "않습니다."
    ),
    "This run is {x}: {x}": "이 실행의 상태는 {0}입니다: {1}",
    "wait for its report with: {x}": "보고서를 기다리려면: {0}",
    "resume it with the command that began it": "시작한 명령으로 이어서 하세요",
    "its chunks are being computed; where no process drives it, that one was killed": (
        "청크를 계산하는 중이며, 실행하는 프로세스가 없다면 강제로 종료된 것입니다"
    ),
    "its live calls are being made; where no process drives it, that one was killed": (
        "호출하는 중이며, 실행하는 프로세스가 없다면 강제로 종료된 것입니다"
    ),
    "its live calls are over, and their outputs are about to be evaluated": "호출이 끝나 곧 출력을 평가합니다",
    "left to the fleet by --detach": "--detach로 워커들에게 맡겼습니다",
    "ended by Ctrl-C or SIGTERM": "Ctrl-C나 SIGTERM으로 끝났습니다",
    "stopped by evalq pause": "evalq pause로 멈췄습니다",
    "its command ended with an error": "명령이 오류로 끝났습니다",
    "its budget of calls is used up": "호출 예산을 다 썼습니다",
    "it cannot be computed as it is: an input changed, answers diverged, or a target refused": (
        "이대로는 계산할 수 없습니다. 입력이 바뀌었거나, 답이 서로 다르거나, 대상이 거부했습니다"
    ),
    "what has no result is about to be tried again": "결과가 없는 것을 곧 다시 시도합니다",
    "its log is read as it grows": "늘어나는 로그를 따라 읽습니다",
    "ended for good by evalq cancel": "evalq cancel로 완전히 끝났습니다",
    "{n} found in lines {n} to {n} of {n}": "{3}줄 중 {1} ~ {2}번째 줄에서 {0}개 찾음",
    "{n} found in lines {n} to {n}": "{1} ~ {2}번째 줄에서 {0}개 찾음",
    "Lines {n} to {n} of {n}": "{2}줄 중 {0} ~ {1}번째 줄",
    "Runs of one evaluator, suite and target, to be compared with each other.": (
        "평가기, 스위트, 대상이 같아 서로 비교할 수 있는 실행들입니다."
    ),
    "No run has finished yet.": "아직 끝난 실행이 없습니다.",
    "The mean over cases of each run, with its 95 % interval.": "실행별 케이스 평균과 95 % 구간입니다.",
    "No baseline is approved for it; evalq baseline set NAME RUN does that.": (
        "승인된 기준선이 없습니다. evalq baseline set NAME RUN으로 승인합니다."
    ),
    "The cases of {n} runs are not read yet: load this page again.": (
        "실행 {0}개의 케이스를 아직 읽지 못했습니다. 페이지를 다시 여세요."
    ),
    "No record of this run is about it, or its records are not here.": (
        "이 실행에 해당 레코드가 없거나, 레코드가 여기에 없습니다."
    ),
    "No record of these runs is about it, or their records are not here.": (
        "두 실행에 해당 레코드가 없거나, 레코드가 여기에 없습니다."
    ),
    "This address leads nowhere.": "이 주소에는 페이지가 없습니다.",
    "Its folder is gone, or it has expired in the ledger.": "폴더가 없어졌거나 장부에서 만료되었습니다.",
    "The records of this run are not here, or fewer than that.": "이 실행의 레코드가 여기에 없거나 그보다 적습니다.",
    "The records of this run are not here, or it has no report yet.": (
        "이 실행의 레코드가 여기에 없거나, 아직 보고서가 없습니다."
    ),
    "Too many for one table": "표 하나로는 너무 많습니다",
    "evalq report RUN -o report.html makes one with a sample of them.": (
        "evalq report RUN -o report.html 명령은 일부를 뽑아 표를 만듭니다."
    ),
    "That cannot be read (any more)": "(더 이상) 읽을 수 없습니다",
    "The query of the address is too long.": "주소의 질의가 너무 깁니다.",
    "This run has no such answer.": "이 실행에는 해당하는 답이 없습니다.",
    "The two runs asked different questions.": "두 실행의 질문이 다릅니다.",
    "no process drives it here": "여기서 실행하는 프로세스가 없습니다",
    # Comparisons.
    "against": "대", "compared with it": "비교 대상", "base": "기준", "no record here": "레코드 없음",
    "Margin, of the scale": "여유, 척도 기준", "Margin": "여유", "Two runs": "두 실행",
    "Two runs side by side": "두 실행 나란히 보기", "the baseline {x}": "기준선 {0}", "What changed": "바뀐 것",
    "Change": "변화", "A scale has 100 points": "척도는 100 포인트입니다",
    "the same, within the margin": "여유 안에서 같음", "worse": "더 나쁨", "better": "더 좋음", "changed": "바뀜",
    "the same": "같음", "Cases": "케이스", "No case matches.": "맞는 케이스가 없습니다.", "no answer": "답 없음",
    "{n} of {n} passed": "{1}개 중 {0}개 통과", "Measure by measure": "척도별 비교", "95 % between": "95 % 구간",
    "p worse": "p (더 나쁨)", "p better": "p (더 좋음)", "Smallest detectable": "알아낼 수 있는 최소 변화",
    "Cases that both answered": "둘 다 답한 케이스", "{n} case lost": "나빠진 케이스 {0}개",
    "{n} cases lost": "나빠진 케이스 {0}개", "{n} case won": "좋아진 케이스 {0}개",
    "{n} cases won": "좋아진 케이스 {0}개", "the first {n}": "처음 {0}개", "Besides": "그 밖에",
    "Both reports": "두 보고서", "Newly collapsed: {x}": "새로 붕괴함: {0}",
    "Pick two runs of one evaluator.": "한 평가기의 실행 두 개를 고르세요.",
    "The change with its 95 % interval": "변화와 95 % 구간입니다",
    "right of the line is better": "선의 오른쪽이 더 좋습니다",
    "left of the line is better": "선의 왼쪽이 더 좋습니다",
    "Changes within {n} points count as none": "{0} 포인트 이내의 변화는 없는 것으로 봅니다",
    "The line is at no change.": "선은 변화 없음의 위치입니다.",
    "inconclusive: the answers cannot tell": "판단 불가: 답만으로는 알 수 없음",
    "No case has an answer in both runs.": "두 실행 모두에 답이 있는 케이스가 없습니다.",
    "Its report is not here.": "보고서가 여기에 없습니다.",
    "Their parameters differ (another golden set, or other rules): that may be the cause of a change.": (
        "매개변수가 다릅니다(다른 골든 세트나 규칙). 변화의 원인일 수 있습니다."
    ),
    "The cost of an output: {x}, where it was {x}": "출력 하나의 비용: {0}, 이전에는 {1}",
    "{x} of the calls' seconds: {n}, where it was {x}": "호출 시간의 {0}: {1}초, 이전에는 {2}",
    "For cases like these, the change is between {n} and {n}": "이런 케이스에서 변화는 {0} ~ {1} 사이입니다",
    "{n} times as many repeats would decide, if the change is really this large": (
        "변화가 정말 이만하다면 반복을 {0}배로 늘리면 정해집니다"
    ),
    "The candidate lacks {n} answers that the baseline has": "기준에 있는 답 {0}개가 비교 대상에는 없습니다",
    "If all of them failed, the change would be {n}": "그 답이 모두 실패라면 변화는 {0}입니다",
    "{n} cases not answered by the candidate: {x}": "비교 대상이 답하지 않은 케이스 {0}개: {1}",
    "{n} cases not answered by the baseline: {x}": "기준이 답하지 않은 케이스 {0}개: {1}",
    "{n} cases with another input or other checks now, which do not count: {x}": (
        "입력이나 검사가 바뀌어 세지 않는 케이스 {0}개: {1}"
    ),
    "evalq stopped calling {n} cases once they were decided, which biases their means to the more frequent "
    "answer": (
        "케이스 {0}개는 정해진 뒤 호출을 멈췄고, 그래서 평균이 더 흔한 답 쪽으로 치우칩니다"
    ),
    "They cannot show that nothing changed": "변화가 없다는 것은 보일 수 없습니다",
    "They can show a change only if both runs used the same --stop and --repeat": (
        "두 실행의 --stop과 --repeat가 같을 때만 변화를 보일 수 있습니다"
    ),
    "None of them is named as worse": "나빠졌다고 이름을 들지 않습니다",
    "They were evaluated by version {x} and version {x}": "버전 {0}과 버전 {1}로 평가했습니다",
    "Got worse, beyond chance: {x}": "우연을 넘어 나빠짐: {0}",
    "The verdict is for cases like these, since repeats of this target may depend on each other": (
        "이 대상의 반복은 서로 독립이 아닐 수 있어, 판정은 이런 케이스 전체에 대한 것입니다"
    ),
    # Decisions of a gate.
    "verdict": "판정", "baseline": "기준선", "candidate": "비교 대상", "missing": "빠진 답", "number": "숫자",
    "case": "케이스", "cases": "케이스", "change": "변화", "reason": "이유", "run": "실행", "why": "이유",
    "has to be": "요구", "tier": "등급", "until": "기한", "quarantine": "격리", "critical": "필수",
    "supporting": "보조", "{x} and {n} more": "{0} 외 {1}개", "{x} ({n} of {n})": "{0} ({2}개 중 {1}개)",
    "{x} ({n} of {n} to {n} of {n})": "{0} ({2}개 중 {1}개에서 {4}개 중 {3}개로)",
    "Numbers": "숫자", "Its answer is not in a run folder here.": "답이 있는 실행 폴더가 여기에 없습니다.",
    "Answers to the cases that changed most, at most {n}, one of each run": (
        "가장 많이 바뀐 케이스의 답, 최대 {0}개, 실행마다 하나씩"
    ),
    "({n} equal cases of the baseline's {n} and the candidate's {n})": (
        "(기준선의 케이스 {1}개와 비교 대상의 케이스 {2}개 중 같은 것 {0}개)"
    ),
    "at least {n}": "{0} 이상", "at most {n}": "{0} 이하", "equals {x}": "{0}와 같음", "it is {n}": "값은 {0}",
    "falls by at most {n}": "하락 {0} 이하", "gets worse by at most {n}": "나빠짐 {0} 이하",
    "falls by at most {n} of the baseline": "하락, 기준선의 {0} 이하",
    "gets worse by at most {n} of the baseline": "나빠짐, 기준선의 {0} 이하",
    "at most {n} answers missing": "빠진 답 {0}개 이하",
    "no case falls beyond chance": "우연을 넘어 나빠진 케이스 없음",
    "no collapsed case": "붕괴한 케이스 없음", "no newly collapsed case": "새로 붕괴한 케이스 없음",
    "as many repeats of each case": "케이스마다 같은 반복 수", "answers of its own": "자신의 새 답",
    "each answer once": "답마다 한 번씩", "at least {n} answers": "답 {0}개 이상",
    "the specification of the baseline": "기준선과 같은 명세", "no drop behind the baseline": "기준선 대비 하락 없음",
    "no more answers lost than in the baseline": "기준선보다 더 많이 잃은 답 없음",
    "every case passes {n} of {n}": "모든 케이스가 {1}번 중 {0}번 통과",
    "every case that passed before passes": "전에 통과한 케이스는 모두 통과",
    "every case that passed before has an answer": "전에 통과한 케이스는 모두 답이 있음",
    "every case that passed before has all of its answers": "전에 통과한 케이스는 모든 답이 있음",
    "changed by {n}, with 95 % between {n} and {n} for these cases ({n} to {n}, {n} cases)": (
        "변화 {0}, 이 케이스들의 95 % 구간 {1} ~ {2} ({3}에서 {4}로, 케이스 {5}개)"
    ),
    "{n}, with 95 % between {n} and {n}": "{0}, 95 % 구간 {1} ~ {2}",
    "it would be {x} if missing answers counted against it": "빠진 답을 실패로 세면 {0}",
    "{n} of {n} cases fell beyond chance: {x}": "케이스 {1}개 중 {0}개가 우연을 넘어 나빠졌습니다: {2}",
    "{n} case passed before and failed now: {x}": "전에 통과했으나 지금 실패한 케이스 {0}개: {1}",
    "{n} cases passed before and failed now: {x}": "전에 통과했으나 지금 실패한 케이스 {0}개: {1}",
    "{n} cases passed before and failed now": "전에 통과했으나 지금 실패한 케이스 {0}개",
    "{n} case passed before and got no answer now: {x}": "전에 통과했으나 지금 답이 없는 케이스 {0}개: {1}",
    "{n} cases passed before and got no answer now: {x}": "전에 통과했으나 지금 답이 없는 케이스 {0}개: {1}",
    "{n} cases passed before and got no answer now": "전에 통과했으나 지금 답이 없는 케이스 {0}개",
    "{n} case passed before and lack some of their answers now: {x}": (
        "전에 통과했으나 지금 답 일부가 없는 케이스 {0}개: {1}"
    ),
    "{n} cases passed before and lack some of their answers now: {x}": (
        "전에 통과했으나 지금 답 일부가 없는 케이스 {0}개: {1}"
    ),
    "{n} in both runs": "두 실행 모두에 {0}개", "as recorded": "기록된 답 기준",
    "by statistics it would be {x}": "통계로는 {0}",
    "{n} of {n} cases failing, {n} undecided": "케이스 {1}개 중 실패 {0}개, 미정 {2}개",
    "the share is {n} on average, lowest {n} ({n} of {n}), with 95 % between {n} and {n}": (
        "비율은 평균 {0}, 최저 {1} ({3}개 중 {2}개), 95 % 구간 {4} ~ {5}"
    ),
    "{n} cases with fewer than the {n} answers that it takes": "필요한 답 {1}개보다 적은 케이스 {0}개",
    "{n} case with fewer than the {n} answers that it takes": "필요한 답 {1}개보다 적은 케이스 {0}개",
    "even a case that always passes takes {n} answers to prove it": (
        "항상 통과하는 케이스도 증명하려면 답 {0}개가 필요합니다"
    ),
    "{n} more in quarantine": "격리 {0}개 더",
    "{n} case has fewer repeats than the others: {x}": "다른 케이스보다 반복이 적은 케이스 {0}개: {1}",
    "{n} cases have fewer repeats than the others: {x}": "다른 케이스보다 반복이 적은 케이스 {0}개: {1}",
    "If failures were left out, the candidate only looks good: a demand is GO only if it holds with all of them": (
        "실패를 뺐다면 비교 대상은 좋아 보일 뿐입니다. 그 반복을 모두 실패로 세어도 지켜지는 요구만 GO입니다"
    ),
    "Record all repeats, or put `uneven_repeats: true` into the policy": (
        "반복을 모두 기록하거나, 정책에 `uneven_repeats: true`를 넣으세요"
    ),
    "The candidate gave no usable answer for {n} of {n} answers ({x}): more than in the baseline beyond chance": (
        "비교 대상은 답 {1}개 중 {0}개에서 쓸 수 있는 답을 주지 않았습니다 ({2}): 우연을 넘어 기준선보다 많습니다"
    ),
    "{n} of {n} in the baseline": "기준선에서는 {1}개 중 {0}개",
    "{n} cases without any answer": "답이 전혀 없는 케이스 {0}개",
    "{n} case without any answer": "답이 전혀 없는 케이스 {0}개",
    "{x}: evalq cannot name a case as worse: {n} answers a case are too few for that": (
        "{0}: 케이스마다 답이 {1}개뿐이라, 나빠진 케이스의 이름을 들 수 없습니다"
    ),
    "{x}: evalq cannot name a case as worse: one answer a case is too few for that": (
        "{0}: 케이스마다 답이 하나뿐이라, 나빠진 케이스의 이름을 들 수 없습니다"
    ),
    "{x}: this comparison sees a fall from {n} on (SUSPECT), and shows one beyond {n} from about {n} on (NO-GO), in "
    "four of five runs": (
        "{0}: 이 비교는 다섯 번 중 네 번, {1}부터 하락을 알아내고 (SUSPECT), 약 {3}부터 {2}를 넘는 하락을 "
        "보입니다 (NO-GO)"
    ),
    "{x}: {n} cases without a record: all of their answers are missing": (
        "{0}: 레코드가 없는 케이스 {1}개: 그 답이 모두 빠졌습니다"
    ),
    "{x}: {n} case without a record: all of their answers are missing": (
        "{0}: 레코드가 없는 케이스 {1}개: 그 답이 모두 빠졌습니다"
    ),
    "{x}: {n} missing answers (errors, dead, unanswered or left out); they are no scores": (
        "{0}: 빠진 답 {1}개 (오류, 프로세스 종료, 답 없음, 기록에서 빠짐). 점수로 세지 않습니다"
    ),
    "{x}: {n} missing answer (errors, dead, unanswered or left out); they are no scores": (
        "{0}: 빠진 답 {1}개 (오류, 프로세스 종료, 답 없음, 기록에서 빠짐). 점수로 세지 않습니다"
    ),
    "no run counts its answers by kind: count them (checks: --diversity text), or omit `collapse`": (
        "답을 종류별로 센 실행이 없습니다. 종류를 세거나 (checks: --diversity text), `collapse`를 빼세요"
    ),
    "counts all the same: {x}": "격리 없이 셉니다: {0}", "set aside: {x}": "격리함: {0}",
    "its quarantine ended on {n}-{n}-{n}": "격리 기한이 {0}-{1}-{2}에 끝났습니다",
    "{n} of its answers are missing, which quarantine does not excuse": (
        "답 {0}개가 빠졌고, 격리는 이를 봐주지 않습니다"
    ),
    "unknown: {n} of {n} answers passed in {n} earlier run of one target": (
        "알 수 없음: 같은 대상의 이전 실행 {2}개에서 답 {1}개 중 {0}개 통과"
    ),
    "unknown: {n} of {n} answers passed in {n} earlier runs of one target": (
        "알 수 없음: 같은 대상의 이전 실행 {2}개에서 답 {1}개 중 {0}개 통과"
    ),
    "{n} of {n} now": "지금은 {1}개 중 {0}개",
}
# fmt: on
